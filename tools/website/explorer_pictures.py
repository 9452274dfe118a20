"""Photographs of the explorers in a notebook, in JupyterLab, as whoever runs their cells first sees them."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nbformat.notebooknode import NotebookNode

from tests.browser.lab import browse, cell, open_notebook, run_cell, serve, write_notebook

SIZE = (1280, 960)  # of the page, of which JupyterLab leaves 1,112 for the explorer
EDGE = 8  # pixels around an explorer
SECONDS = 900  # of wall time for one cell
# Until nothing is searched in the background any more. Explorers are found among the widgets: a list of all objects
# would hold tuples that other threads are still making, which fail then.
SETTLED = """from ipywidgets.widgets.widget import _instances
for found in [thing for thing in list(_instances.values()) if type(thing) is rx.Explorer]:
    found.wait(600)
    found.wait_for_sweep(600)
"""
DRAWN = """(root) => Number(root.querySelector('.remat-matrices')?.dataset.rows) > 0
    && Number(root.querySelector('.remat-curve').dataset.points) > 0
    && Number(root.querySelector('.remat-map')?.dataset.rectangles) > 0
    && root.querySelector('.remat-status').dataset.busy === ''"""


def explorers_photographed(
    notebook: NotebookNode, shown_by: Collection[str], playwright: Any, chromium: str
) -> dict[str, bytes]:
    """A PNG of each explorer, by the identity of the cell that shows it.

    Args:
        notebook: without outputs.
        shown_by: the identities of the code cells that show an explorer.
        playwright: started.
        chromium: the browser's program.
    """
    if not shown_by:
        return {}
    sources: list[str] = []
    places: dict[int, str] = {}
    for code in [one for one in notebook.cells if one.cell_type == "code"]:
        sources.append(code.source)
        if code.id in shown_by:
            places[len(sources) - 1] = code.id
            sources.append(SETTLED)
    pictures: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with serve(folder) as address, browse(playwright, folder / "profile", chromium, *SIZE) as page:
            write_notebook(folder / "root" / "explorers.ipynb", sources[: max(places) + 2])
            open_notebook(page, address, "explorers.ipynb")
            for number in range(max(places) + 2):
                run_cell(page, number, SECONDS)
                if number - 1 in places:
                    page.keyboard.press("Escape")
                    explorer = cell(page, number - 1).locator(".remat-explorer")
                    explorer.scroll_into_view_if_needed()
                    page.wait_for_function(DRAWN, arg=explorer.element_handle(), timeout=120_000)
                    page.wait_for_timeout(2000)
                    pictures[places[number - 1]] = page.screenshot(clip=_with_edge(explorer.bounding_box()))
    return pictures


def _with_edge(box: dict[str, float]) -> dict[str, float]:
    """A box with some room around it."""
    room = {"x": -EDGE, "y": -EDGE, "width": 2 * EDGE, "height": 2 * EDGE}
    return {name: box[name] + more for name, more in room.items()}
