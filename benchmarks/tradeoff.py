"""Every method at the same budgets: what training costs in 80, 60, 40 and 25 % of the memory that keeping all needs.

    python benchmarks/tradeoff.py --time-limit 10
    python benchmarks/tradeoff.py --graphs unet vgg16 --methods optimal dtr

Cells are overheads over computing everything once: "-" where a method refuses the graph, "none" where it has no
schedule within the budget, or none in time, and "infeasible" where it is proven that there is none; a graph on which
that is so everywhere, as single operations need more beside the parameters, has one line. In the end stands whether
the optimal strategy is nowhere worse than another method; if it is somewhere, the exit code is 1.

The graphs named keras are scaled to a batch, since parameters alone take most of the memory of a single image.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from report import publish

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_overhead
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers import STRATEGIES, checkpoint_all_peak, scale_batch
from remat_explorer.solvers.search.compilation import warm_up

DATA = Path(__file__).parents[1] / "tests" / "data"
SHARES = (80, 60, 40, 25)  # per cent of checkpoint-all's peak
SAME = 1e-9  # relative difference of two costs that are the same
Found = dict[int, Solution] | str  # by budget, or why the method refuses the graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", help="names of files (default: all)")
    parser.add_argument("--methods", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds of each method and budget (default: 5)")
    parser.add_argument("--batch", type=int, default=32, help="of the graphs named keras (default: 32)")
    parser.add_argument(
        "--most-operations", type=int, default=600, help="larger graphs are left out (default: 600; densenet161: 1139)"
    )
    options = parser.parse_args()
    warm_up()
    rows, details, worse = [], [], []
    paths = [*DATA.glob("captured/*.json"), *DATA.glob("graphs/keras_*.json")]
    for path in sorted(paths, key=lambda path: path.stat().st_size):
        if options.graphs is not None and path.stem not in options.graphs:
            continue
        graph = Graph.load(str(path))
        if graph.n > options.most_operations:
            print(f"{path.stem} is left out: {graph.n} operations", flush=True)
            continue
        if path.stem.startswith("keras_"):
            graph = scale_batch(graph, options.batch)
        peak = checkpoint_all_peak(graph)
        budgets = [int(share / 100 * peak) for share in SHARES]
        found = {name: of_method(graph, name, budgets, options.time_limit) for name in options.methods}
        lines = [[path.stem, name, *(cell(found[name], budget) for budget in budgets)] for name in found]
        if all(text == "infeasible" for line in lines for text in line[2:]):
            lines = [[path.stem, "every method", *lines[0][2:]]]
        print(*("  ".join(line) for line in lines), sep="\n", flush=True)
        rows += lines
        worse += [f"{path.stem} at {where}" for where in worse_than_others(found, budgets)]
        details.append({"graph": path.stem, "operations": graph.n, "peak": peak, "budgets": budgets} | documents(found))
    limits = {"time_limit": options.time_limit, "batch": options.batch, "most_operations": options.most_operations}
    publish("tradeoff", ("graph", "method", *(f"{share} %" for share in SHARES)), rows, details, worse=worse, **limits)
    print(f"optimal is worse than another method: {'; '.join(worse) or 'nowhere'}")
    sys.exit(1 if worse else 0)


def of_method(graph: Graph, name: str, budgets: list[int], time_limit: float) -> Found:
    """What a method has at each budget; one that does not ask for the budget makes its schedules once for all."""
    if getattr(STRATEGIES[name], "candidates", None) is not None:
        with ThreadPoolExecutor(1) as thread:
            frontier = rx.sweep(graph, budgets, name, thread, time_limit=time_limit, workers=1)
        if not frontier.own_points(name):
            return next(iter(frontier.messages.values()))
        return {solution.budget: solution for solution in frontier.solutions}
    try:
        return {budget: rx.solve(graph, budget, name, time_limit, threads=1) for budget in budgets}
    except RematError as error:
        return str(error)


def cell(found: Found, budget: int) -> str:
    """A method's overhead at a budget, or what stands in its place."""
    if isinstance(found, str):
        return "-"
    solution = found[budget]
    if solution.overhead is not None:
        return format_overhead(solution.overhead)
    return "infeasible" if solution.status is Status.INFEASIBLE else "none"


def worse_than_others(found: dict[str, Found], budgets: list[int]) -> list[str]:
    """Budgets at which another method has a cheaper schedule than the optimal strategy, and by how much."""
    best = found.get("optimal")
    if best is None or isinstance(best, str):
        return []
    worse = []
    for share, budget in zip(SHARES, budgets, strict=True):
        cost = best[budget].cost
        for name, other in found.items():
            theirs = None if isinstance(other, str) else other[budget].cost
            if theirs is not None and (cost is None or cost > theirs * (1 + SAME)):
                by = "without a schedule" if cost is None else f"{100 * (cost / theirs - 1):.4f} %"
                worse.append(f"{share} %: {name}, {by}")
    return worse


def documents(found: dict[str, Found]) -> dict[str, Any]:
    """What the file says of each method."""
    entries: dict[str, Any] = {}
    for name, solutions in found.items():
        if isinstance(solutions, str):
            entries[name] = {"refused": solutions}
            continue
        entries[name] = [
            {"status": str(s.status), "cost": s.cost, "overhead": s.overhead, "peak": s.peak, "gap": s.gap}
            | {"seconds": s.seconds}
            for s in solutions.values()
        ]
    return {"methods": entries}


if __name__ == "__main__":
    main()
