"""Every method at the same budgets: what training costs in 80, 60, 40 and 25 % of the memory that keeping all needs.

    python benchmarks/tradeoff.py --time-limit 10
    python benchmarks/tradeoff.py --graphs unet vgg16 --methods optimal dtr
    python benchmarks/tradeoff.py --family chains random

Families are the captured networks, chains of up to 300 layers (of unit costs and sizes, and drawn ones), and drawn
training graphs with skip connections. Chains and drawn graphs are cheap to keep to little memory, so their budgets are
smaller; there, all but searches have a tenth of the time.

Cells are overheads over computing everything once: "-" where a method refuses the graph, "none" where it has no
schedule within the budget, or none in time, and "infeasible" where it is proven that there is none; a graph on which
that is so everywhere, as single operations need more beside the parameters, has one line. In the end stands whether
`optimal` and `monet` are nowhere worse than a method that answered in a tenth of their time; if they are somewhere, the
exit code is 1.

The graphs named keras are scaled to a batch, since parameters alone take most of the memory of a single image.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from report import publish

sys.path.insert(0, str(Path(__file__).parents[1]))
import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_overhead
from remat_explorer.solvers import STRATEGIES, Solution, Status, checkpoint_all_peak, scale_batch
from remat_explorer.solvers.search.compilation import warm_up
from tests.solvers.random_graphs import random_graph

DATA = Path(__file__).parents[1] / "tests" / "data"
SHARES = {  # per cent of checkpoint-all's peak
    "captured": (80, 60, 40, 25),
    "chains": (40, 20, 10, 7),
    "random": (80, 60, 50, 40),
}
SEARCHES = ("optimal", "monet")
QUICKLY = 0.1  # of the time limit: what answers so fast must not be better than a search
LAYERS = (32, 100, 300)  # of chains
DRAWN = (6, 12, 25, 50, 100)  # layers of drawn graphs
SAME = 1e-9  # relative difference of two costs that are the same
Found = dict[int, Solution] | str  # by budget, or why the method refuses the graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="+", choices=list(SHARES), default=["captured"], help="which graphs")
    parser.add_argument("--graphs", nargs="+", help="names of graphs (default: all of the families)")
    parser.add_argument("--methods", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES))
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds of each method and budget (default: 5)")
    parser.add_argument("--batch", type=int, default=32, help="of the graphs named keras (default: 32)")
    parser.add_argument(
        "--most-operations", type=int, default=600, help="larger graphs are left out (default: 600; densenet161: 1139)"
    )
    options = parser.parse_args()
    warm_up()
    worse = []
    for family in options.family:
        worse += of_family(family, options)
    print(f"a search is worse than another method: {'; '.join(worse) or 'nowhere'}")
    sys.exit(1 if worse else 0)


def of_family(family: str, options: argparse.Namespace) -> list[str]:
    """Solve, show and keep a family's graphs; returns where a search is worse than another method."""
    shares = SHARES[family]
    rows, details, worse = [], [], []
    for name, graph in graphs_of(family, options):
        peak = checkpoint_all_peak(graph)
        budgets = [int(share / 100 * peak) for share in shares]
        shorter = QUICKLY if family != "captured" else 1.0
        seconds = {m: options.time_limit * (1.0 if m in SEARCHES else shorter) for m in options.methods}
        found = {method: of_method(graph, method, budgets, seconds[method]) for method in options.methods}
        lines = [[name, method, *(cell(found[method], budget) for budget in budgets)] for method in found]
        if all(text == "infeasible" for line in lines for text in line[2:]):
            lines = [[name, "every method", *lines[0][2:]]]
        print(*("  ".join(line) for line in lines), sep="\n", flush=True)
        rows += lines
        at = dict(zip(budgets, shares, strict=True))
        worse += [f"{name} at {where}" for where in worse_than_others(found, at, options.time_limit)]
        details.append({"graph": name, "operations": graph.n, "peak": peak, "budgets": budgets} | documents(found))
    limits = {"time_limit": options.time_limit, "batch": options.batch, "most_operations": options.most_operations}
    file = "tradeoff" if family == "captured" else f"tradeoff_{family}"
    publish(file, ("graph", "method", *(f"{share} %" for share in shares)), rows, details, worse=worse, **limits)
    return worse


def graphs_of(family: str, options: argparse.Namespace) -> Iterator[tuple[str, Graph]]:
    """The graphs of a family that were asked for, by their names."""
    for name, load in LOADERS[family](options):
        if options.graphs is None or name in options.graphs:
            graph = load()
            if graph.n <= options.most_operations or family != "captured":
                yield name, graph
            else:
                print(f"{name} is left out: {graph.n} operations", flush=True)


def captured(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Files of captured networks, the smallest first."""

    def load(path: Path) -> Graph:
        graph = Graph.load(str(path))
        return scale_batch(graph, options.batch) if path.stem.startswith("keras_") else graph

    paths = [*DATA.glob("captured/*.json"), *DATA.glob("graphs/keras_*.json")]
    for path in sorted(paths, key=lambda path: path.stat().st_size):
        yield path.stem, partial(load, path)


def chains(_: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Unit chains, and chains whose costs and sizes are drawn."""
    for layers in LAYERS:
        yield f"linear{layers}", partial(rx.linear, layers)
        yield f"drawn{layers}", partial(drawn_chain, layers)


def drawn_chain(layers: int) -> Graph:
    """A chain like `linear`, of costs from 1 to 9 and sizes from 1 to 9, the same ones in every run."""
    chain, random = rx.linear(layers), np.random.default_rng(layers)
    sizes, costs = random.integers(1, 10, (2, chain.n)).tolist()
    values = tuple(replace(value, bytes=size) for value, size in zip(chain.values, sizes, strict=True))
    ways = [replace(node.default, cost=float(cost)) for node, cost in zip(chain.operations, costs, strict=True)]
    operations = (replace(node, implementations=(way,)) for node, way in zip(chain.operations, ways, strict=True))
    return replace(chain, name=f"drawn{layers}", values=values, operations=tuple(operations))


def drawn(_: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Graph]]]:
    """Training graphs of the tests: skip connections, several outputs, persistent values, workspace."""
    for layers in DRAWN:
        for seed in range(3):
            yield f"random{seed} of {layers} layers", partial(random_graph, seed, layers)


LOADERS = {"captured": captured, "chains": chains, "random": drawn}


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


def worse_than_others(found: dict[str, Found], at: dict[int, int], time_limit: float) -> list[str]:
    """Budgets at which a method that answered quickly has a cheaper schedule than a search, and by how much.

    Args:
        at: for each budget its share of checkpoint-all's peak.
    """
    worse = []
    for search in SEARCHES:
        best = found.get(search, "")
        if isinstance(best, str):
            continue
        for name, other in found.items():
            for budget, theirs in {} if isinstance(other, str) else other.items():
                cost, quick = best[budget].cost, theirs.seconds <= QUICKLY * time_limit
                if quick and theirs.cost is not None and (cost is None or cost > theirs.cost * (1 + SAME)):
                    by = "without a schedule" if cost is None else f"{100 * (cost / theirs.cost - 1):.4f} %"
                    worse.append(f"{at[budget]} %: {name}, {search} {by}")
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
