"""How fast the matrices of thousands of operations are, folded and unfolded: in JupyterLab in headless Chromium.

    python benchmarks/folding.py
    python benchmarks/folding.py --layers 32    (a smaller one)

The graph is that of a transformer of 250 layers, 8,005 operations. Milliseconds: the first paint of the controls, and
of the matrices that keep everything, from when the cell is run; medians of the time from the kernel's clock when it
changes the state to the page's when the canvas is drawn, for a move of the cursor, and for folding and unfolding by the
key F, from the key to the end of drawing. "found" is what the search for repeated blocks takes alone. Targets: first
paint 5 s and the cursor 10 ms, folded as well as unfolded. What misses its target is marked with *.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from interface import CONTROLS, MOVE, SCREEN, WATCH, delays, stamps, stolen
from playwright.sync_api import sync_playwright
from report import publish

sys.path.insert(0, str(Path(__file__).parents[1]))
from remat_explorer.cli.terminal import find_chromium
from remat_explorer.graph.repeated_blocks import repeated_blocks
from tests.browser.lab import browse, open_notebook, run_cell, serve, write_notebook
from tests.core.repeated_graphs import transformer

TARGETS = {"paint": 5000.0, "matrices": 5000.0, "cursor folded": 10.0, "cursor unfolded": 10.0}
PAUSE = 0.5  # seconds between two moves
SHOW = """import remat_explorer as rx
from remat_explorer.graph import Graph
explorer = rx.Explorer(graph=Graph.load("graph.json"), strategy="checkpoint-all", improve=False, sweep=False)
explorer"""
# The page's own time, from the key to the end of drawing.
PRESS = """async () => {
    const root = document.querySelector('.remat-matrices'), drawn = root.dataset.drawn, begun = performance.now();
    root.dispatchEvent(new KeyboardEvent('keydown', {key: 'F', bubbles: true}));
    while (root.dataset.drawn === drawn) await new Promise((done) => setTimeout(done));
    return performance.now() - begun;
}"""


def found(layers: int) -> float:
    """Milliseconds in which the blocks of a graph that nothing is known of yet are found."""
    graph = transformer(layers)
    begun = time.perf_counter()
    repeated_blocks(graph)
    return 1000 * (time.perf_counter() - begun)


def measure(page: Any, address: str, root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every latency of the explorer of that graph."""
    before = psutil.cpu_times()
    result: dict[str, Any] = {"found": [found(options.layers) for _ in range(3)]}
    moves = MOVE.format(repeats=options.repeats, pause=PAUSE)
    transformer(options.layers).save(str(root / "graph.json"))
    write_notebook(root / "folding.ipynb", ["None", SHOW, "explorer.wait()", moves, moves])
    open_notebook(page, address, "folding.ipynb")
    run_cell(page, 0)
    begun = time.monotonic()
    page.locator(".jp-CodeCell .cm-content").nth(1).click()
    page.keyboard.press("Control+Enter")
    for kind, ready in (("paint", CONTROLS), ("matrices", SCREEN)):
        page.wait_for_function(ready, timeout=120_000)
        result[kind] = [1000 * (time.monotonic() - begun)]
    run_cell(page, 2, 600)
    page.evaluate(WATCH)
    result["operations"] = int(page.locator(".remat-matrices").get_attribute("data-rows"))
    result["unfold"], result["fold"] = [], []
    for cell, kind in ((3, "cursor folded"), (4, "cursor unfolded")):
        page.evaluate("window.drawn.cursor = []")
        run_cell(page, cell, 180)
        result[kind] = delays(page, stamps(page, cell), "cursor")
        if cell == 3:
            for _ in range(3):
                result["unfold"].append(page.evaluate(PRESS))
                result["fold"].append(page.evaluate(PRESS))
            result["unfold"].append(page.evaluate(PRESS))
    result["stolen"] = stolen(before)
    result["failures"], result["outside requests"] = list(page.failures), list(page.leaks)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    chromium = find_chromium() or sys.exit("no browser was found")
    with (
        tempfile.TemporaryDirectory() as place,
        serve(Path(place)) as address,
        sync_playwright() as playwright,
        browse(playwright, Path(place) / "profile", chromium) as page,
    ):
        result = measure(page, address, Path(place) / "root", options)
    row = [f"transformer of {options.layers} layers", str(result["operations"])]
    kinds = ("found", "paint", "matrices", "cursor folded", "cursor unfolded", "fold", "unfold")
    for kind in kinds:
        median = statistics.median(result[kind]) if result[kind] else float("nan")
        row.append(f"{median:.1f}{'' if median <= TARGETS.get(kind, float('inf')) else '*'}")
    row.append(f"{100 * result['stolen']:.1f} %")
    publish("folding", ["graph", "n", *kinds, "stolen"], [row], result, layers=options.layers, repeats=options.repeats)


if __name__ == "__main__":
    main()
