"""An explorer in a page: bring it there, read its status line, press its buttons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.browser.lab import open_notebook, run_cell, write_notebook
from tests.browser.lasting_notebook import LastingNotebook

CELL = "import remat_explorer as rx\nexplorer = {}\nexplorer"
ON_SCREEN = """() => {
    const matrices = document.querySelector('.remat-matrices');
    const figure = document.querySelector('.js-plotly-plot');
    return matrices && Number(matrices.dataset.rows) > 0 && figure && figure._fullData
        && figure._fullData.find((trace) => trace.name === 'predicted')?.x?.length > 1
}"""


def status(page: Any) -> str:
    return page.locator(".remat-status .text").inner_text()


def await_idle(page: Any, seconds: float = 60) -> None:
    page.wait_for_selector('.remat-status[data-busy=""]', timeout=1000 * seconds)


def click(page: Any, name: str) -> None:
    page.locator(".remat-controls").get_by_role("button", name=name).click()


def open_more(page: Any) -> None:
    """Show the fields beyond model and budget, which the browser may remember to be open."""
    more = page.locator(".remat-controls").get_by_role("button", name="More")
    if not page.locator(".remat-more").is_visible():
        more.click()
    page.wait_for_selector(".remat-more", state="visible")


def stage(page: Any) -> int:
    return int(page.locator(".remat-matrices").get_attribute("data-stage"))


def show(page: Any, lab: tuple[str, Path], name: str, explorer: str) -> None:
    """Open a notebook with the explorer, run it, and wait for matrices and timeline."""
    address, root = lab
    write_notebook(root / name, [CELL.format(explorer)])
    open_notebook(page, address, name)
    _run(page)


def show_in(notebook: LastingNotebook, explorer: str) -> Any:
    """The page of a notebook that is open already, with the explorer as it comes there."""
    page = notebook.begin(CELL.format(explorer))
    _run(page)
    return page


def _run(page: Any) -> None:
    run_cell(page, 0)
    page.wait_for_function(ON_SCREEN, timeout=90_000)
    await_idle(page)
    page.keyboard.press("Escape")
