"""The optimal strategy as an anytime search: how soon there is a schedule, a small gap, a proof.

    python benchmarks/solver.py --time-limit 60

Budget: B = largest operation + f (checkpoint-all peak - largest operation). Gaps are against the full problem, of the
incumbent at that time. A run ends when the gap is at most 0.01 %, or with the time. Every figure stands against its
target: the first schedule within 0.3 s (n <= 600) or 1 s, a gap of at most 1 % within 5 s (f = 0.5 and 0.2) or 30 s
(f = 0.05), and a proof for two thirds of the instances. Missed ones carry an exclamation mark.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import publish

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.solvers import Progress, checkpoint_all_peak, largest_operation
from remat_explorer.solvers.search.compilation import warm_up

DATA = Path(__file__).parents[1] / "tests" / "data"
COLUMNS = ("graph", "n", "f", "first s", "bound s", "gap 1 s", "gap 5 s", "gap 30 s", "gap", "seconds", "overhead")
PROOF = 1e-4  # gap that counts as a proof
CLOSE = 0.01


@dataclass
class Course:
    """What became known when, in seconds since the start."""

    started: float = field(default_factory=time.perf_counter)
    costs: list[tuple[float, float]] = field(default_factory=list)
    bounds: list[tuple[float, float]] = field(default_factory=list)

    def hear(self, progress: Progress) -> None:
        now = time.perf_counter() - self.started
        if progress.schedule is not None:
            self.costs.append((now, progress.schedule.cost))
        if progress.lower_bound is not None:
            self.bounds.append((now, progress.lower_bound))

    def gap(self, until: float = float("inf")) -> float | None:
        """Relative gap of the best schedule and the best bound by then."""
        costs = [cost for seconds, cost in self.costs if seconds <= until]
        bounds = [bound for seconds, bound in self.bounds if seconds <= until]
        return max(0.0, 1 - max(bounds) / min(costs)) if costs and bounds else None

    @property
    def proven(self) -> bool:
        gap = self.gap()
        return gap is not None and gap <= PROOF


def run(graph: Graph, fraction: float, time_limit: float) -> tuple[list[str], dict[str, Any]]:
    """One instance: the table's row and the details."""
    least, most = largest_operation(graph)[1], checkpoint_all_peak(graph)
    budget = int(least + fraction * (most - least))
    course = Course()
    found = rx.solve(
        graph, budget, time_limit=time_limit, threads=2, on_progress=course.hear, cancelled=lambda: course.proven
    )
    seconds = time.perf_counter() - course.started
    if found.cost is not None:
        course.costs.append((seconds, found.cost))
    if found.lower_bound is not None:
        course.bounds.append((seconds, found.lower_bound))
    first = course.costs[0][0] if course.costs else None
    bounded = next((at for at, bound in course.bounds if bound > graph.total_cost * (1 + 1e-9)), None)
    gaps = {limit: course.gap(limit) for limit in (1.0, 5.0, 30.0, seconds)}
    late = {"first": first is None or first > (0.3 if graph.n <= 600 else 1.0)}
    limit = 30.0 if fraction < 0.2 else 5.0
    gap = gaps[limit]
    late["gap"] = gap is None or gap > CLOSE
    marks = ["!" if late["gap"] and limit == at else "" for at in (1.0, 5.0, 30.0)]
    row = [graph.name, str(graph.n), f"{fraction:g}", _number(first, ".2f") + ("!" if late["first"] else "")]
    row += [_number(bounded, ".2f")]
    row += [_percent(gaps[at]) + mark for at, mark in zip((1.0, 5.0, 30.0), marks, strict=True)]
    row += [_percent(gaps[seconds]), f"{seconds:.1f}", _number(found.overhead, ".5f")]
    details = {
        "graph": graph.name,
        "fraction": fraction,
        "budget": budget,
        "status": str(found.status),
        "first": first,
        "bounded": bounded,
        "gaps": {f"{at:g}": gap for at, gap in list(gaps.items())[:3]} | {"end": gaps[seconds]},
        "seconds": seconds,
        "proven": course.proven,
        "missed": late,
        "cost": found.cost,
        "lower_bound": found.lower_bound,
    }
    return row, details


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def _percent(gap: float | None) -> str:
    return "none" if gap is None else f"{100 * gap:.3f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--fractions", type=float, nargs="+", default=[0.5, 0.2, 0.05])
    parser.add_argument("--graphs", nargs="+", help="names of graphs (default: all)")
    options = parser.parse_args()
    warm_up()
    paths = sorted([*DATA.glob("graphs/*.json"), *DATA.glob("captured/*.json")], key=lambda path: path.stat().st_size)
    rows, details = [], []
    for path in reversed(paths):
        if options.graphs is None or path.stem in options.graphs:
            graph = Graph.load(str(path))
            for fraction in options.fractions:
                row, detail = run(graph, fraction, options.time_limit)
                rows.append(row)
                details.append(detail)
                print(*row, sep="  ", flush=True)
    rows.reverse()
    details.reverse()
    proven = sum(detail["proven"] for detail in details)
    print(f"proven to 0.01 %: {proven} of {len(details)}")
    for target in ("first", "gap"):
        missed = [f"{d['graph']} at {d['fraction']:g}" for d in details if d["missed"][target]]
        print(f"target missed ({target}): {', '.join(missed) or 'none'}")
    publish("solver", COLUMNS, rows, details, time_limit=options.time_limit, threads=2)


if __name__ == "__main__":
    main()
