"""Export as a person uses it: the menu, files in the working directory, downloads, and pictures of the screen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from tests.browser.lab import run_cell
from tests.browser.lasting_notebook import LastingNotebook

pytestmark = pytest.mark.browser

ON_SCREEN = """() => {
    const matrices = document.querySelector('.remat-matrices');
    const figure = document.querySelector('.js-plotly-plot');
    return matrices && Number(matrices.dataset.rows) > 0 && figure && figure._fullData
}"""
COLOURS = """async (bytes) => {
    const bitmap = await createImageBitmap(new Blob([new Uint8Array(bytes)]));
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
    const context = canvas.getContext('2d');
    context.drawImage(bitmap, 0, 0);
    const pixels = new Uint32Array(context.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    return [canvas.width, canvas.height, new Set(pixels).size];
}"""


@pytest.fixture(scope="module")
def page(notebook: LastingNotebook) -> Any:
    """A solved chain in a notebook."""
    made = "import remat_explorer as rx\ne = rx.Explorer(graph=rx.linear(8), improve=False, sweep=False)\ne.wait()"
    page = notebook.begin(f"{made}\ne.state.budget = 4\ne.solve()\ne.wait()\ne")
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    page.keyboard.press("Escape")
    page.wait_for_selector(".remat-status:has-text('Optimal')", timeout=60_000)
    return page


@pytest.fixture
def shown(notebook: LastingNotebook) -> Path:
    """The folder of the notebook."""
    return notebook.root


def choose(page: Any, label: str) -> None:
    page.locator(".remat-export > button").click()
    page.locator(".remat-export-menu").get_by_role("button", name=label, exact=True).click()


def saved(page: Any, root: Path, name: str) -> bytes:
    """What was saved; files are written atomically, so one that is there is complete."""
    end = time.monotonic() + 60
    while not (root / name).exists():
        assert time.monotonic() < end, f"{name} is not there; the status is {page.inner_text('.remat-status')!r}"
        page.wait_for_timeout(100)
    return (root / name).read_bytes()


def test_files_are_saved_downloaded_and_never_replaced(shown: Path, page: Any, tmp_path: Path) -> None:
    for name in ("linear8-graph.json", "linear8-graph-2.json"):
        choose(page, "Graph (JSON)")
        saved(page, shown, name)
    graph = rx.Graph.load(str(shown / "linear8-graph.json"))

    choose(page, "Report (HTML)")
    assert saved(page, shown, "linear8-report.html").startswith(b"<!doctype html>")

    with page.expect_download(timeout=60_000) as download:
        choose(page, "Report (HTML): download")  # several megabytes, in parts
    assert download.value.suggested_filename == "linear8-report.html"
    download.value.save_as(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").endswith("</html>\n")

    with page.expect_download() as download:
        choose(page, "Solution (JSON): download")
    download.value.save_as(tmp_path / "solution.json")
    assert rx.Solution.load(tmp_path / "solution.json", graph).budget == 4

    page.locator(".remat-export > button").click()
    assert page.locator(".remat-export-menu").get_by_role("button", name="Execution for Perfetto").first.is_disabled()
    page.keyboard.press("Escape")
    assert page.locator(".remat-export-menu").is_hidden()
    assert page.leaks == []
    assert page.failures == []


def test_pictures_show_what_is_on_the_screen(shown: Path, page: Any) -> None:
    choose(page, "Plots (SVG)")
    drawing = saved(page, shown, "linear8-plots.svg")
    assert drawing.startswith(b"<svg")
    assert b"predicted" in drawing
    for label, name in (
        ("Plots (PNG)", "linear8-plots.png"),
        ("Matrices (PNG)", "linear8-matrices.png"),
        ("Model (PNG)", "linear8-model.png"),
    ):
        if label.startswith("Model"):
            page.locator(".remat-scrubber").get_by_role("button", name="Model", exact=True).click()
            page.wait_for_selector(".remat-model canvas", state="visible")
        choose(page, label)
        width, height, colours = page.evaluate(COLOURS, list(saved(page, shown, name)))
        assert width > 600
        assert height > 200
        assert colours > 8
    assert page.leaks == []
    assert page.failures == []
