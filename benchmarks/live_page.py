"""How large the live page is, how long it takes to write, and how fast it answers, from disk in headless Chromium.

    python benchmarks/live_page.py
    python benchmarks/live_page.py --cases gpt2    (measures these again, and keeps the others)

A page holds a sweep of 24 budgets. Medians of the times between an event of the page and the drawing that answers it,
and the slowest drag. Targets: 8 MB for a graph of 1,000 operations, and in proportion for more; 16 ms from the pointer
to the matrices up to 600 operations, 5 ms to the stage's cursor; first paint 5 s after the file is opened. What misses
its target is marked with *. "stolen" is the share of the processor time this machine wanted that others on the same
host took meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from interface import WATCH, delays, drag, stolen
from report import RESULTS, publish

sys.path.insert(0, str(Path(__file__).parents[1]))
from playwright.sync_api import sync_playwright

import remat_explorer as rx
from remat_explorer.cli.terminal import find_chromium
from tests.browser.lab import browse

KEPT = RESULTS / "live_page.json"
CASES = {
    "residual_net": lambda: rx.models.load("residual_net").graph,
    "gpt2": lambda: rx.models.load("gpt2").graph,
    "densenet161": lambda: rx.models.load("densenet161").graph,
}
POINTS = 24
SIZE, DRAG, CURSOR, PAINT = 8e6, 16.0, 5.0, 5000.0  # bytes for 1,000 operations; milliseconds
SHOWN = "body[data-ready][data-shown]"
COLUMNS = ("page", "n", "values", "points", "written in", "size", "first paint", "drag", "slowest", "cursor", "stolen")


def press(page: Any, repeats: int) -> list[float]:
    """Milliseconds from an arrow key to the cursor on the next stage."""
    page.locator(".remat-matrices").focus()
    page.evaluate("window.drawn.cursor = []; window.drawn.keys = []")
    for number in range(repeats):
        page.keyboard.press("ArrowUp" if number % 2 else "ArrowDown")
        page.wait_for_timeout(100)
    return delays(page, page.evaluate("window.drawn.keys"), "cursor")


def measure(page: Any, case: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Size and latencies of one page."""
    graph = CASES[case]()
    frontier = rx.sweep(graph, POINTS, time_limit=options.time_limit)
    path = folder / f"{case}.html"
    begun = time.process_time()
    rx.save_page(frontier, path)
    result: dict[str, Any] = {"written": time.process_time() - begun, "bytes": path.stat().st_size}
    result |= {"operations": graph.n, "values": len(graph.values), "points": len(frontier.scheduled())}
    before, begun = psutil.cpu_times(), time.monotonic()
    page.goto(path.as_uri())
    page.wait_for_selector(SHOWN, timeout=120_000)
    result["paint"] = 1000 * (time.monotonic() - begun)
    page.evaluate(WATCH)
    result["drag"], result["cursor"] = drag(page, options.repeats), press(page, options.repeats)
    result["stolen"] = stolen(before)
    result["failures"], result["outside requests"] = list(page.failures), list(page.leaks)
    return result


def row(case: str, result: dict[str, Any]) -> list[str]:
    """The table's row."""
    drags, cursors, n = result["drag"], result["cursor"], result["operations"]
    room = SIZE * max(1.0, n / 1000)

    def timed(milliseconds: float, target: float) -> str:
        return f"{milliseconds:.1f} ms{'' if milliseconds <= target else '*'}"

    return [
        case,
        f"{n:,}",
        f"{result['values']:,}",
        str(result["points"]),
        f"{result['written']:.0f} s",
        f"{result['bytes'] / 1e6:.1f} MB{'' if result['bytes'] <= room else '*'}",
        timed(result["paint"], PAINT),
        timed(statistics.median(drags), DRAG if n <= 600 else float("inf")),
        timed(max(drags), float("inf")),
        timed(statistics.median(cursors), CURSOR),
        f"{100 * result['stolen']:.1f} %",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="others stay as they were")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds for each budget (default: 5)")
    options = parser.parse_args()
    chromium = find_chromium() or sys.exit("no browser was found")
    details = json.loads(KEPT.read_text())["details"] if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        for case in options.cases:
            with browse(playwright, Path(place) / f"profile-{case}", chromium) as page:
                details[case] = measure(page, case, Path(place), options)
            print(" ".join(row(case, details[case])), details[case]["failures"], flush=True)
    rows = [row(case, details[case]) for case in CASES if case in details]
    publish("live_page", list(COLUMNS), rows, details, repeats=options.repeats, time_limit=options.time_limit)


if __name__ == "__main__":
    main()
