"""The liveness formulation against the paper's problem (9), on captured networks, in one run.

    python benchmarks/solve.py --time-limit 20

Budget: B = largest operation + f (checkpoint-all peak - largest operation). Gaps are against the full problem.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from report import publish

import remat_explorer as rx
from remat_explorer.quantities import format_share
from remat_explorer.solvers import checkpoint_all_peak

CAPTURED = Path(__file__).parents[1] / "tests" / "data" / "captured"
COLUMNS = ("graph", "n", "f", "strategy", "status", "overhead", "gap", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.5, 0.2])
    options = parser.parse_args()
    rows, details = [], []
    for path in sorted(CAPTURED.glob("*.json")):
        graph = rx.Graph.load(str(path))
        least, most = rx.minimum_budget(graph).lower_bound, checkpoint_all_peak(graph)
        for fraction in options.fractions:
            budget = int(least + fraction * (most - least))
            for strategy in ("optimal", "checkmate-ilp"):
                found = rx.solve(graph, budget, strategy=strategy, time_limit=options.time_limit)
                overhead = "" if found.overhead is None else f"{found.overhead:.4f}"
                gap = "" if found.gap is None else format_share(found.gap)
                row = [graph.name, str(graph.n), str(fraction), strategy, str(found.status), overhead, gap]
                rows.append([*row, f"{found.seconds:.1f}"])
                details.append(
                    {key: entry for key, entry in found.to_document().items() if key not in ("R", "S")}
                    | {"fraction": fraction}
                )
    publish("solve", COLUMNS, rows, details, time_limit=options.time_limit)


if __name__ == "__main__":
    main()
