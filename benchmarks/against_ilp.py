"""The optimal strategy against problem (9) as the paper writes it, with the same solver, in one run.

    python benchmarks/against_ilp.py --time-limit 300

Instances that problem (9) closes within the limit count: both optima must be the same, and the table says how many
times faster the search is, with the geometric mean in the end.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from report import publish

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.solvers import Status, checkpoint_all_peak, largest_operation
from remat_explorer.solvers.search.compilation import warm_up

DATA = Path(__file__).parents[1] / "tests" / "data"
COLUMNS = ("graph", "n", "f", "problem (9) s", "its status", "optimal s", "its status", "times faster", "same optimum")
SAME = 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=300.0)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.5, 0.2, 0.05])
    parser.add_argument("--most-operations", type=int, default=85, help="larger graphs are left out (default: 85)")
    options = parser.parse_args()
    warm_up()
    rows, details, ratios, differing = [], [], [], []
    for path in sorted(
        [*DATA.glob("graphs/*.json"), *DATA.glob("captured/*.json")], key=lambda path: path.stat().st_size
    ):
        graph = Graph.load(str(path))
        if graph.n > options.most_operations:
            continue
        least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
        for fraction in options.fractions:
            budget = int(least + fraction * (most - least))
            search = rx.solve(graph, budget, time_limit=options.time_limit, threads=2)
            ilp = rx.solve(graph, budget, strategy="checkmate-ilp", time_limit=options.time_limit)
            closed = ilp.status in (Status.OPTIMAL, Status.INFEASIBLE)
            same = closed and _same(ilp.cost, search.cost)
            row = [graph.name, str(graph.n), f"{fraction:g}", f"{ilp.seconds:.2f}", str(ilp.status)]
            row += [f"{search.seconds:.3f}", str(search.status)]
            if closed:
                ratios.append(ilp.seconds / search.seconds)
                row += [f"{ratios[-1]:.0f}", "yes" if same else "NO"]
                if not same:
                    differing.append(f"{graph.name} at {fraction:g}")
            else:
                row += ["", ""]
            rows.append(row)
            details.append(
                {"graph": graph.name, "fraction": fraction, "budget": budget, "closed": closed, "same": same}
                | {"ilp_seconds": ilp.seconds, "seconds": search.seconds, "ilp_cost": ilp.cost, "cost": search.cost}
            )
            print(*row, sep="  ", flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    print(f"{len(ratios)} instances closed by problem (9): {mean:.0f} times faster in the geometric mean")
    print(f"different optima: {', '.join(differing) or 'none'}")
    publish("against_ilp", COLUMNS, rows, details, time_limit=options.time_limit, geometric_mean=mean)


def _same(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return abs(first - second) <= SAME * first


if __name__ == "__main__":
    main()
