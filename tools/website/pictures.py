"""Outputs of the notebooks for whoever reads them without running them: `make pictures`.

Pictures of figures and explorers, and what cells with the tag "printed" print, stand in a cell of their own below the
code that gives them, with what they depend on, so that a test finds them stale.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat.notebooknode import NotebookNode

from tools.website.execution import ROOT, WIDGET, executed, key_of, sources_digest
from tools.website.explorer_pictures import explorers_photographed
from tools.website.outputs import PICTURE, PLOTLY
from tools.website.slide_pictures import draw_slides

FOLDER = ROOT / "notebooks" / "pictures"
SIZE = {"width": 760, "height": 440}
STILL = {"height": 150, "sliders": [], "updatemenus": [], "margin": {"t": 50, "b": 30}}  # a frame of an animation alone
SAID = "*Output of the cell above, for readers who do not run it.*"
PRINTED = "printed"  # tag of code cells whose printed lines are wanted, too
SHOWS = "shows"  # in the metadata of a code cell: what its figure shows, where the figure has no title
UNTITLED, EXPLORER = "The figure", "The explorer"
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
                found.append(", ".join(kept["files"]) or kept["of"])
    return found


def picture_cell(of: NotebookNode, depends: str, pictures: Mapping[str, str], printed: str = "") -> NotebookNode:
    """The cell below a code cell.

    Args:
        of: the code cell.
        depends: as `digest_of` gives it.
        pictures: words for each, by the name of its file.
        printed: what stands above them, as `told` gives it.
    """
    lines = [printed] if printed else []
    for name, words in pictures.items():
        picture = f"![{words}](pictures/{name})"  # that of an explorer is as large as the live one above it
        lines.append(
            f"<details><summary>{words}</summary>\n\n{picture}\n\n</details>" if words == EXPLORER else picture
        )
    metadata = {"tags": [PICTURE], PICTURE: {"of": of.id, "depends": depends, "files": list(pictures)}}
    return nbformat.v4.new_markdown_cell("\n\n".join([*lines, SAID]), id=f"{of.id}-picture", metadata=metadata)


def told(outputs: Sequence[Mapping[str, Any]]) -> str:
    """What a cell printed, lines and tables, as Markdown.

    >>> print(told([{"output_type": "stream", "name": "stdout", "text": "cost 26\\n"}]))
    ```text
    cost 26
    ```
    """
    text = "".join(one["text"] for one in outputs if one.get("name") == "stdout").rstrip()
    lines = "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))  # of a line of progress what stays
    tables = [one["data"]["text/markdown"] for one in outputs if "text/markdown" in one.get("data", {})]
    return "\n\n".join([f"```text\n{lines}\n```", *tables] if lines else tables)


def with_pictures(path: Path, cache: Path, sources: str, page: Any, browser: tuple[Any, str]) -> NotebookNode:
    """A notebook with a picture below each cell that draws; files are written beside the notebooks.

    Args:
        path: of the notebook.
        cache: folder of what was executed before.
        sources: as `sources_digest` gives them.
        page: with plotly's script.
        browser: playwright and the browser's program, for explorers.
    """
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = without_pictures(notebook.cells)
    found, live = executed(notebook, cache, sources)
    shown_by = [cell.id for cell in found.cells if any(_is_explorer(one, live) for one in cell.get("outputs", ()))]
    key = f"{key_of(notebook, sources)}-explorers"
    explorers = {file.stem: file.read_bytes() for file in (cache / key).glob("*.png")}
    if set(explorers) != set(shown_by):
        explorers = explorers_photographed(notebook, shown_by, *browser)
        (cache / key).mkdir(exist_ok=True)
        for of, taken in explorers.items():
            (cache / key / f"{of}.png").write_bytes(taken)
    cells: list[NotebookNode] = []
    for number, cell in enumerate(notebook.cells):
        cells.append(cell)
        outputs = found.cells[number].get("outputs", ())
        shown = cell.metadata.get(SHOWS, UNTITLED)
        drawn = [one for output in outputs for one in _drawn(output, page, shown)]
        drawn += [(EXPLORER, explorers[cell.id])] if cell.id in explorers else []
        names = [
            f"{path.stem.partition('_')[0]}-{cell.id}{f'-{i}' if i > 1 else ''}.png" for i in range(1, len(drawn) + 1)
        ]
        for name, (_, taken) in zip(names, drawn, strict=True):
            (FOLDER / name).write_bytes(taken)
        pictures = {name: words for name, (words, _) in zip(names, drawn, strict=True)}
        wanted = PRINTED in cell.metadata.get("tags", ())
        printed = told(outputs) if wanted else ""
        if pictures or printed:
            cells.append(picture_cell(cell, digest_of(notebook.cells, number), pictures, printed))
    notebook.cells = cells
    return notebook


def _is_explorer(output: Mapping[str, Any], live: Mapping[str, str]) -> bool:
    return output.get("data", {}).get(WIDGET, {}).get("model_id") in live


def _drawn(output: Mapping[str, Any], page: Any, untitled: str) -> list[tuple[str, bytes]]:
    """A figure in words and as PNG, of an animation several of its frames; nothing for other outputs.

    Its words are its title, or `untitled` where it has none.
    """
    figure = output.get("data", {}).get(PLOTLY)
    if figure is None:
        return []
    stills = [{key: figure[key] for key in ("data", "layout")}]
    if wanted := figure["layout"].get("meta", {}).get("stills"):
        frames = {frame["name"]: frame for frame in figure["frames"]}
        tall = {"height": figure["layout"]["meta"].get("still height", STILL["height"])}
        stills = [
            {"data": frames[name]["data"], "layout": {**figure["layout"], **frames[name]["layout"], **STILL, **tall}}
            for name in wanted
        ]
    drawn = []
    for still in stills:
        address = page.evaluate(DRAW, [json.loads(json.dumps(still)), SIZE])
        title = still["layout"].get("title", {}).get("text") or untitled
        words = title.replace("<br>", ", ").replace("[", "(").replace("]", ")")
        drawn.append((words, base64.b64decode(address.partition(",")[2])))
    return drawn


def _chosen(beginnings: Sequence[str]) -> list[Path]:
    """The notebooks whose names begin so, such as "01"; all if there are none."""
    every = sorted((ROOT / "notebooks").glob("*.ipynb"))
    return [path for path in every if not beginnings or path.stem.partition("_")[0] in beginnings]


def main() -> int:
    """Renew every picture; notebooks are executed where what they depend on has changed."""
    from playwright.sync_api import sync_playwright
    from plotly.offline import get_plotlyjs

    from remat_explorer.cli.terminal import REMEDY, find_chromium

    parser = argparse.ArgumentParser(prog="python -m tools.website.pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the site, which shares what was executed")
    parser.add_argument("notebooks", nargs="*", help="such as 01 04b; all if there are none")
    options = parser.parse_args()
    cache, sources, chromium = options.folder.resolve() / "executed", sources_digest(), find_chromium()
    if chromium is None:
        sys.exit(f"Neither Chromium nor Chrome was found; mend it with: {REMEDY}")
    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.add_script_tag(content=get_plotlyjs())
        for path in _chosen(options.notebooks):
            for old in FOLDER.glob(f"{path.stem.partition('_')[0]}-*.png"):
                old.unlink()
            nbformat.write(with_pictures(path, cache, sources, page, (playwright, chromium)), path)
            print(path.name, flush=True)
        draw_slides(page)
        browser.close()
    print(f"{sum(file.stat().st_size for file in FOLDER.glob('*.png'))} bytes in {FOLDER.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
