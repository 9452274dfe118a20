"""Pictures of the figures in the notebooks, for whoever reads them without running them: `make pictures`.

Each stands in a cell of its own below the code that draws it, with what it depends on, so that a test finds it stale.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode

from tools.website.execution import ROOT, WIDGET, executed, sources_digest
from tools.website.outputs import PICTURE, PLOTLY
from tools.website.slide_pictures import draw_slides

FOLDER = ROOT / "notebooks" / "pictures"
SIZE = {"width": 760, "height": 440}
EXPLORER = {"width": 1240, "height": 900}
SAID = "*The output above as a picture, for reading without running.*"
DRAW = """async ([figure, size]) => {
    const {data, layout} = figure;
    const all = {...layout, width: layout.width ?? size.width, height: layout.height ?? size.height};
    return await Plotly.toImage({data, layout: all}, {format: "png", width: all.width, height: all.height, scale: 1});
}"""


def digest_of(cells: list[NotebookNode], number: int) -> str:
    """What the output of a cell depends on within its notebook: the code down to it."""
    code = [cell.source for cell in cells[: number + 1] if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()[:16]


def without_pictures(cells: list[NotebookNode]) -> list[NotebookNode]:
    """The cells that are no pictures."""
    return [cell for cell in cells if PICTURE not in cell.metadata.get("tags", ())]


def stale(notebook: NotebookNode, folder: Path = FOLDER) -> list[str]:
    """Pictures of a notebook that are missing, or older than the code above them."""
    cells, found = without_pictures(notebook.cells), []
    now = {cell.id: digest_of(cells, number) for number, cell in enumerate(cells)}
    for cell in notebook.cells:
        if PICTURE in cell.metadata.get("tags", ()):
            kept = cell.metadata["picture"]
            missing = [name for name in kept["files"] if not (folder / name).exists()]
            if missing or now.get(kept["of"]) != kept["depends"]:
                found.append(", ".join(kept["files"]))
    return found


def picture_cell(of: NotebookNode, depends: str, pictures: Mapping[str, str]) -> NotebookNode:
    """The cell below a code cell.

    Args:
        of: the code cell.
        depends: as `digest_of` gives it.
        pictures: words for each, by the name of its file.
    """
    lines = [f"![{words}](pictures/{name})" for name, words in pictures.items()]
    metadata = {"tags": [PICTURE], PICTURE: {"of": of.id, "depends": depends, "files": list(pictures)}}
    return nbformat.v4.new_markdown_cell("\n\n".join([*lines, SAID]), id=f"{of.id}-picture", metadata=metadata)


def with_pictures(path: Path, cache: Path, sources: str, page: Any) -> NotebookNode:
    """A notebook with a picture below each cell that draws; files are written beside the notebooks.

    An exercise keeps its answer right below it, so it has none.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = without_pictures(notebook.cells)
    found, live = executed(notebook, cache, sources)
    cells: list[NotebookNode] = []
    for number, cell in enumerate(notebook.cells):
        cells.append(cell)
        following = notebook.cells[number + 1].source if number + 1 < len(notebook.cells) else ""
        if cell.cell_type == "code" and "<details>" not in following:
            pictures = {}
            for output in found.cells[number].outputs:
                taken = _picture(output.get("data", {}), live, page)
                if taken is not None:
                    name = f"{path.stem[:2]}-{cell.id}{f'-{len(pictures) + 1}' if pictures else ''}.png"
                    pictures[name] = taken[0]
                    (FOLDER / name).write_bytes(taken[1])
            if pictures:
                cells.append(picture_cell(cell, digest_of(notebook.cells, number), pictures))
    notebook.cells = cells
    return notebook


def _picture(data: Mapping[str, Any], live: Mapping[str, str], page: Any) -> tuple[str, bytes] | None:
    """What a figure or an explorer shows, in words and as PNG; None for other outputs."""
    if PLOTLY in data:
        figure = {key: data[PLOTLY][key] for key in ("data", "layout")}
        address = page.evaluate(DRAW, [json.loads(json.dumps(figure)), SIZE])
        title = figure["layout"].get("title", {}).get("text") or "The figure"
        words = title.replace("<br>", ", ").replace("[", "(").replace("]", ")")
        return words, base64.b64decode(address.partition(",")[2])
    text = live.get(data[WIDGET]["model_id"]) if WIDGET in data else None
    if text is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(text, "utf-8")
        own = page.context.browser.new_page(viewport=EXPLORER)
        own.goto(file.as_uri())
        own.wait_for_selector("body[data-ready][data-shown]", timeout=60_000)
        own.wait_for_timeout(1500)
        taken = own.screenshot()
        own.close()
    return "The explorer", taken


def main() -> int:
    """Renew every picture; notebooks are executed where what they depend on has changed."""
    from playwright.sync_api import sync_playwright
    from plotly.offline import get_plotlyjs

    from remat_explorer.cli.shell.chromium import REMEDY, find_chromium

    parser = argparse.ArgumentParser(prog="python -m tools.website.pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the site, which shares what was executed")
    cache, sources, chromium = parser.parse_args().folder.resolve() / "executed", sources_digest(), find_chromium()
    if chromium is None:
        sys.exit(f"Neither Chromium nor Chrome was found; mend it with: {REMEDY}")
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.png"):
        old.unlink()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.add_script_tag(content=get_plotlyjs())
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            nbformat.write(with_pictures(path, cache, sources, page), path)
            print(path.name, flush=True)
        draw_slides(page)
        browser.close()
    print(f"{sum(file.stat().st_size for file in FOLDER.glob('*.png'))} bytes in {FOLDER.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
