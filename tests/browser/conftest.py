"""A JupyterLab and a browser for the tests, or the reason why there is none."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remat_explorer.cli.terminal import REMEDY, find_chromium
from tests.browser.lab import LastingNotebook, browse, serve
from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401

LEAVE = """async () => {
    if (!window.jupyterapp?.commands.hasCommand('apputils:change-theme')) return; // Voila ends its kernel itself
    await window.jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'});
    await window.jupyterapp.shell.currentWidget?.sessionContext?.shutdown();
}"""


@pytest.fixture(scope="session")
def chromium() -> str:
    """A browser to drive; skipped where there is none, except in CI."""
    found = find_chromium()
    if found is None:
        reason = f"neither Chromium nor Chrome was found; mend it with: {REMEDY}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="package")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a running JupyterLab, and the folder it serves; it ends, and its kernels, with these tests."""
    folder = tmp_path_factory.mktemp("lab")
    with serve(folder) as address:
        yield address, folder / "root"


@pytest.fixture(scope="package")
def playwright() -> Iterator[Any]:
    """The driver of browsers, of which a thread can have one."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started


@pytest.fixture
def page(playwright: Any, chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A fresh page of 1280 x 800; kernels that it has started end with it, and JupyterLab becomes light again."""
    with browse(playwright, tmp_path_factory.getbasetemp() / "profile", chromium) as page:
        yield page
        page.screenshot(path=tmp_path_factory.mktemp("page") / "end.png")
        page.evaluate(LEAVE)


@pytest.fixture(scope="package")
def one_page(playwright: Any, chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page for files that need no kernel."""
    with browse(playwright, tmp_path_factory.getbasetemp() / "file-profile", chromium) as page:
        yield page


@pytest.fixture
def file_page(one_page: Any, tmp_path: Path) -> Iterator[Any]:
    """The page for files as if it were fresh: 1280 x 800, light, with nothing in it."""
    one_page.set_viewport_size({"width": 1280, "height": 800})
    one_page.emulate_media(color_scheme="light", reduced_motion="no-preference")
    one_page.context.set_offline(False)
    one_page.goto("about:blank")
    one_page.failures.clear()
    one_page.leaks.clear()
    yield one_page
    one_page.screenshot(path=tmp_path / "end.png")


@pytest.fixture(scope="package")
def one_lab(
    playwright: Any, chromium: str, lab: tuple[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LastingNotebook]:
    """A notebook in JupyterLab that stays open from file to file: loading it all takes half a minute."""
    with browse(playwright, tmp_path_factory.getbasetemp() / "lasting-profile", chromium) as page:
        yield LastingNotebook(page, *lab)


@pytest.fixture(scope="module")
def notebook(one_lab: LastingNotebook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LastingNotebook]:
    """A notebook in JupyterLab, of which `begin` makes another one; a file of tests leaves its kernel without work."""
    yield one_lab
    one_lab.page.screenshot(path=tmp_path_factory.mktemp("page") / "end.png")
    one_lab.clear()
