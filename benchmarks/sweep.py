"""The trade-off curve of each graph: seconds for a number of budgets together, and the gaps that are left.

    python benchmarks/sweep.py --graphs path/to/graphs

Without a time limit, as a person gets it first. Targets: a 12-point sweep within 5 s for n <= 420 and within 20 s for
n <= 1,150, on two cores; seconds beyond the target are marked with *. Gaps are against the full problem.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path

from report import publish

import remat_explorer as rx
from remat_explorer.errors import GraphError
from remat_explorer.quantities import format_share

DATA = Path(__file__).parents[1] / "tests" / "data"
TARGETS = ((420, 5.0), (1150, 20.0))  # operations, and seconds for a sweep of up to so many
COLUMNS = ("graph", "n", "points", "optimal", "first result", "seconds", "largest gap", "median gap")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=Path, default=DATA, help="folder with graph files, looked through recursively")
    parser.add_argument("--budgets", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, help="seconds of each point (default: seconds in all)")
    parser.add_argument("--least", type=int, default=50, help="operations that a graph must have (default: 50)")
    options = parser.parse_args()
    rows, details = [], []
    for path in sorted(options.graphs.rglob("*.json")):
        graph = graph_in(path)
        if graph is None or graph.n < options.least:
            continue
        begun, arrivals = time.monotonic(), []
        frontier = rx.sweep(
            graph,
            options.budgets,
            time_limit=options.time_limit,
            workers=options.workers,
            on_result=lambda solution, begun=begun, arrivals=arrivals: arrivals.append(time.monotonic() - begun),
        )
        gaps = [1.0 if s.gap is None else s.gap for s in frontier.solutions]
        target = next((seconds for most, seconds in TARGETS if graph.n <= most), math.inf)
        optimal = sum(s.status == "optimal" for s in frontier.solutions)
        row = [graph.name, str(graph.n), str(len(frontier.points)), str(optimal), f"{arrivals[0]:.1f}"]
        mark = "*" if frontier.seconds > target and options.time_limit is None else ""
        seconds = f"{frontier.seconds:.1f}{mark}"
        rows.append([*row, seconds, format_share(max(gaps)), format_share(statistics.median(gaps))])
        details.append(frontier.to_document(with_runs=False) | {"operations": graph.n, "arrivals": arrivals})
        print(" ".join(rows[-1]), flush=True)
    where = {"budgets": options.budgets, "workers": options.workers, "time_limit": options.time_limit}
    publish("sweep", COLUMNS, rows, details, **where)


def graph_in(path: Path) -> rx.Graph | None:
    """The graph of a file, if it holds one."""
    try:
        return rx.Graph.load(str(path))
    except GraphError:
        return None


if __name__ == "__main__":
    main()
