"""The explorer in Notebook 7, which has one notebook in each page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.explorer_page import ON_SCREEN, await_idle
from tests.browser.lab import open_notebook, run_cell, save, serve, write_notebook

pytestmark = pytest.mark.browser

EXPLORER = "rx.Explorer(graph=rx.linear(8), budget=4, improve=False)"
NAME = "explorer.ipynb"


@pytest.fixture(scope="module")
def notebook(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a running Notebook 7, and the folder it serves."""
    folder = tmp_path_factory.mktemp("notebook")
    with serve(folder, program="notebook") as address:
        yield address, folder / "root"


def test_the_explorer_solves_and_follows_and_stands_without_its_kernel(notebook: tuple[str, Path], page: Any) -> None:
    address, root = notebook
    write_notebook(root / NAME, [f"import remat_explorer as rx\nexplorer = {EXPLORER}\nexplorer"])
    open_notebook(page, address, NAME, "notebooks")
    own_failures = list(page.failures)  # Notebook's, while it starts
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    await_idle(page)
    assert page.locator(".js-plotly-plot .scatterlayer path").count() > 3
    page.get_by_role("button", name="Solve").click()
    page.locator(".remat-status").get_by_text("optimal").wait_for(timeout=60_000)
    stage = int(page.locator(".remat-matrices").get_attribute("data-stage"))
    page.locator(".remat-matrices").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(f'.remat-matrices[data-stage="{stage + 1}"]')
    slider = page.locator(".remat-budget input[type=range]")
    drawn = page.locator(".remat-matrices").get_attribute("data-drawn")
    slider.evaluate("s => { s.value = s.max; s.dispatchEvent(new Event('input', {bubbles: true})); }")
    page.wait_for_selector(f'.remat-matrices:not([data-drawn="{drawn}"])')
    page.locator(".remat-matrices").focus()  # keys with Ctrl are the notebook's wherever one is
    save(page, root / NAME, "remat-standing")
    page.evaluate("async () => await window.jupyterapp.serviceManager.sessions.shutdownAll()")
    open_notebook(page, address, NAME, "notebooks")
    page.locator(".remat-standing").wait_for(state="visible")
    assert not page.get_by_text("model not found").is_visible()
    assert [failure for failure in page.failures if failure not in own_failures] == []
    assert page.leaks == []
