"""Budgets near the smallest one that a schedule is known for: how far the schedule is from what is proven, in 60 s.

    python benchmarks/tight.py
    python benchmarks/tight.py --graphs keras_ResNet50 unet    (measures these again, and keeps the others)

Budgets are 1.00, 1.02 and 1.05 times the smallest one that `minimum_budget` knows. Costs and bounds are in relation to
computing everything once. Targets: a gap of 5 % at most everywhere, and of 1 % in the median. What misses the first is
marked with *; the median is printed in the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from report import RESULTS, publish

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_share
from remat_explorer.solvers.search.compilation import warm_up

DATA = Path(__file__).parents[1] / "tests" / "data"
TIMES = (1.0, 1.02, 1.05)  # the smallest budget
EACH, MEDIAN = 0.05, 0.01
COLUMNS = ("graph", "n", "times the smallest", "cost", "bound", "gap", "seconds", "processor s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    paths = {path.stem: path for path in [*DATA.glob("graphs/*.json"), *DATA.glob("captured/*.json")]}
    parser.add_argument("--graphs", nargs="*", choices=sorted(paths), default=sorted(paths))
    parser.add_argument("--time-limit", type=float, default=60.0)
    options = parser.parse_args()
    kept = RESULTS / "tight.json"
    known = json.loads(kept.read_text())["details"] if kept.exists() else []
    details = [entry for entry in known if entry["graph"] not in options.graphs]
    warm_up()
    for name in options.graphs:
        graph = Graph.load(str(paths[name]))
        smallest = rx.minimum_budget(graph).known_feasible
        for times in TIMES:
            details.append({"graph": name, "times": times, **solved(graph, int(times * smallest), options.time_limit)})
            print(*row_of(details[-1]), flush=True)
    details.sort(key=lambda entry: (entry["operations"], entry["graph"], entry["times"]))
    median = statistics.median(entry["gap"] for entry in details)
    publish("tight", COLUMNS, [row_of(entry) for entry in details], details, time_limit=options.time_limit)
    print(f"the median of the gaps is {format_share(median)}{'*' if median > MEDIAN else ''}")


def solved(graph: Graph, budget: int, limit: float) -> dict[str, Any]:
    """What `optimal` finds and proves within a budget."""
    begun, used = time.monotonic(), time.process_time()
    solution = rx.solve(graph, budget, time_limit=limit)
    assert solution.cost is not None
    assert solution.lower_bound is not None
    return {
        "operations": graph.n,
        "budget": budget,
        "cost": solution.cost / graph.total_cost,
        "bound": solution.lower_bound / graph.total_cost,
        "gap": solution.gap,
        "seconds": time.monotonic() - begun,
        "processor_seconds": time.process_time() - used,
    }


def row_of(entry: dict[str, Any]) -> list[str]:
    return [
        entry["graph"],
        f"{entry['operations']:,}",
        f"{entry['times']:.2f}",
        f"{entry['cost']:.4f}",
        f"{entry['bound']:.4f}",
        f"{format_share(entry['gap'])}{'*' if entry['gap'] > EACH else ''}",
        f"{entry['seconds']:.1f}",
        f"{entry['processor_seconds']:.1f}",
    ]


if __name__ == "__main__":
    main()
