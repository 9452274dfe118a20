"""How MOCCASIN's program grows with a chain, beside Checkmate's, and what both ways find in the same time.

    python benchmarks/moccasin.py
    python benchmarks/moccasin.py --layers 50 100 --time-limit 60

The claim of Bartan et al. (ICML 2023): variables grow with the number of operations, not with its square. Columns count
the program's integers and Booleans for C runs of each operation, and beside them the entries of R that problem (9) of
Checkmate has, n (n + 1) / 2. Then come the seconds to write the program, the cost that it finds in the time limit with
what it begins with, and the cost and the bound of `optimal` in the same time.
"""

from __future__ import annotations

import argparse
from typing import Any

from report import publish

import remat_explorer as rx
from remat_explorer.solvers import CondensedGraph, Limits, checkpoint_all_peak
from remat_explorer.solvers.methods.moccasin import CpSatProcess
from remat_explorer.solvers.solver_interface import Incumbent

COUNTING = 5.0  # seconds, in which the program is written
COLUMNS = (
    "layers", "operations", "integers", "Booleans", "variables / operation", "R of (9)", "write s", "moccasin",
    "optimal", "bound",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=[50, 100, 200, 400, 800])
    parser.add_argument("--runs", type=int, default=2, help="C, the runs of an operation")
    parser.add_argument("--budget", default="50%")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of each solve; 0 counts only")
    options = parser.parse_args()
    rows, details = [], []
    for layers in options.layers:
        found = measured(layers, options.runs, options.budget, options.time_limit)
        details.append(found)
        rows.append(row(found))
        print(*rows[-1], flush=True)
    publish("moccasin", COLUMNS, rows, details, runs=options.runs, budget=options.budget, time_limit=options.time_limit)


def measured(layers: int, runs: int, budget: str, time_limit: float) -> dict[str, Any]:
    """One chain: what its program has, and what is found."""
    graph = rx.linear(layers)
    with CpSatProcess() as process:  # it counts, and ends at once
        limits = Limits(time_limit=COUNTING)
        outcome = process.solve(
            CondensedGraph.of(graph), checkpoint_all_peak(graph) // 2, runs, limits, Incumbent(limits)
        )
    found: dict[str, Any] = {
        "layers": layers,
        "operations": graph.n,
        "integers": outcome.integers,
        "booleans": outcome.booleans,
        "entries": graph.n * (graph.n + 1) // 2,
        "seconds": outcome.seconds,
    }
    if time_limit:
        theirs = rx.solve(graph, budget, "moccasin", time_limit=time_limit, most_runs=runs)
        ours = rx.solve(graph, budget, time_limit=time_limit)
        found |= {"moccasin": theirs.cost, "limit": theirs.limit, "optimal": ours.cost, "bound": ours.lower_bound}
    return found


def row(found: dict[str, Any]) -> tuple[str, ...]:
    """As a line of the table."""
    variables = (found["integers"] + found["booleans"]) / found["operations"]
    counts = [found[name] for name in ("layers", "operations", "integers", "booleans")]
    costs = ["–" if found.get(name) is None else f"{found[name]:g}" for name in ("moccasin", "optimal", "bound")]
    return (*map(str, counts), f"{variables:.1f}", str(found["entries"]), f"{found['seconds']:.1f}", *costs)


if __name__ == "__main__":
    main()
