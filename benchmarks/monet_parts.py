"""What MONeT's evaluation shows of a network, one function for each table or figure, with times that add up to a limit.

Beside it, with a limit of its own: how long it takes to prove a small gap of the joint problem at full size.

All overheads are over the cost of the default implementations, each run once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from monet_models import CPU, ROOFLINE, Case
from monet_ways import Course, Way, entry_of, peak_beside, ways_of

import remat_explorer as rx
from remat_explorer.errors import RematError
from remat_explorer.solvers import Solution, Status, checkpoint_all_peak, memory_at_overhead

OVERHEAD = 0.10  # of table 1
TABLE_ONE = {"checkmate-d": 0.2, "checkmate-o": 0.1, "monet, exact": 0.2, "monet": 0.5}  # parts of its time
SHARES = (0.8, 0.65, 0.5, 0.4, 0.3)  # of eager's peak, in figure 3
SHARES_OF_KINDS = (0.65, 0.45, 0.3)  # the same in figure 6
KINDS_SHOWN = (  # MONeT's intermediate-activated operators, its output-activated ones, and its convolution algorithms
    *("masks", "pooling", "statistics"),
    *("activations", "output-activated", "lean"),
    *("input-gradients", "chunks", "algorithms"),
)


def table_one(case: Case, seconds: float) -> dict[str, Any]:
    """The least memory of a schedule that costs at most 10 % more than the default's, relative to eager's peak."""
    graph, ways = case.graph, ways_of(case.graph)
    found: dict[str, Any] = {
        "eager_peak": checkpoint_all_peak(graph),
        "eager_peak_beside": peak_beside(graph),
        "ways": {},
    }
    for name, part in TABLE_ONE.items():
        if name not in ways:
            continue
        way, allowed = ways[name], ways[name].options
        least = memory_at_overhead(way.graph, OVERHEAD, way.strategy, eager=graph, time_limit=part * seconds, **allowed)
        entry = least.to_document() | {"overhead": least.schedule.cost / graph.total_cost - 1}
        if case.executable is not None and least.graph is graph:
            status, bound = Status.FEASIBLE, None
            solution = Solution(graph, way.strategy, status, least.peak, least.schedule, bound, least.seconds, "")
            entry["measured"] = measured(case, solution)
        found["ways"][name] = entry
    return found


def tradeoff(case: Case, seconds: float) -> dict[str, Any]:
    """Figure 3: overhead and measured results by budget."""
    graph, ways = case.graph, ways_of(case.graph)
    peak, rows = checkpoint_all_peak(graph), []
    each = seconds / (len(SHARES) * len(ways))
    for share in SHARES:
        for way in ways.values():
            found = way.solve(budget_at(case, share), each)
            row: dict[str, Any] = {"share": share, "way": way.name} | entry_of(found, graph.total_cost)
            if isinstance(found, Solution) and found.cost and case.executable and found.graph is graph:
                row["measured"] = measured(case, found)
            rows.append(row)
    return {"eager_peak": peak, "eager_peak_beside": peak_beside(graph), "points": rows}


def solver_time(case: Case, seconds: float) -> dict[str, Any]:
    """Seconds until the best schedule is within 5 % and 1 % of the best one that is known, and is proven to.

    What is known: Checkmate's two methods share it, as they schedule the same graph.
    """
    graph, rows = case.graph, []
    ways = ways_of(graph)
    plain = ways["checkmate-d"]
    races = [ways["monet"], ways["monet-paper"], plain, Way("checkmate-ilp", plain.graph, "checkmate-ilp")]
    shares = sorted({case.network.ratio, 0.6})
    for share in shares:
        budget, courses = budget_at(case, share), {}
        for way in races:
            courses[way.name] = course = Course()
            found = way.solve(budget, seconds / len(races) / len(shares), on_progress=course.hear)
            course.end(found)
        known = {way.graph: math.inf for way in races}
        for way in races:
            known[way.graph] = min(known[way.graph], courses[way.name].cost)
        rows += [{"share": share, "way": way.name} | courses[way.name].milestones(known[way.graph]) for way in races]
    return {"races": rows}


def speed(case: Case, seconds: float) -> dict[str, Any]:
    """When the joint problem's gap was proven to be as small as it should, within the network's own limit.

    The seconds of a network's time are nothing to it, and small batches neither.
    """
    network, graph = case.network, case.graph
    if case.setting != ROOFLINE:
        return {}
    course, way = Course(), ways_of(graph)["monet"]
    found = way.solve(budget_at(case, network.fixed), network.seconds, on_progress=course.hear)
    course.end(found)
    entry: dict[str, Any] = {"share": network.fixed, "allowed_gap": network.gap, "allowed_seconds": network.seconds}
    return entry | {"proven": course.proven(network.gap)} | entry_of(found, graph.total_cost)


def ablation(case: Case, seconds: float) -> dict[str, Any]:
    """Figure 6: overhead by budget, and smallest budget, without implementations, with one kind each, and with all."""
    graph = case.graph
    kinds = [kind for kind in KINDS_SHOWN if kind in graph.kinds]
    peak, parts = checkpoint_all_peak(graph), (len(kinds) + 2) * (len(SHARES_OF_KINDS) + 1)
    budgets = [budget_at(case, share) for share in SHARES_OF_KINDS]
    found = rx.ablation(graph, budgets, kinds, time_limit=seconds / parts)
    points = []
    for share, budget in zip(SHARES_OF_KINDS, budgets, strict=True):
        entries = {kind: found.curve(kind)[found.budgets.index(budget)] for kind in ("none", *kinds, "all")}
        groups = {kind: entry_of(solution, graph.total_cost) for kind, solution in entries.items()}
        points.append({"share": share, "budget": budget, "groups": groups})
    least = {kind: found.smallest_budget(kind) for kind in ("none", *kinds, "all")}
    smallest = {
        kind: {"ratio": one.known_feasible / peak, "proven": one.lower_bound / peak} for kind, one in least.items()
    }
    return {"eager_peak": peak, "points": points, "smallest": smallest}


def budget_at(case: Case, share: float) -> int:
    """A share of eager's peak; of small batches, of what is above parameters, which are most of it there."""
    peak, graph = checkpoint_all_peak(case.graph), case.graph
    stays = 0 if case.setting != CPU else graph.resident_bytes + int(graph.value_bytes[graph.persistent].sum())
    return int(stays + share * (peak - stays))


PARTS: dict[str, tuple[Callable[[Case, float], dict[str, Any]], float]] = {  # and its share of a network's time
    "table1": (table_one, 0.3),
    "figure3": (tradeoff, 0.25),
    "figure4": (solver_time, 0.15),
    "figure6": (ablation, 0.3),
    "speed": (speed, 0.0),
}


def measured(case: Case, solution: Solution) -> dict[str, Any]:
    """A solution executed beside plain PyTorch: peaks, seconds, and how far the gradients are apart."""
    assert case.executable is not None
    module, args = case.executable
    try:
        found = rx.measure(solution, module, args, device="cpu" if case.setting == CPU else "cuda")
    except RematError as error:
        return {"word": str(error)}
    entry: dict[str, Any] = {"peak": found.peak, "predicted_peak": found.predicted_peak, "seconds": found.seconds}
    if found.eager is not None:
        entry |= {"eager_peak": found.eager.peak, "eager_seconds": found.eager.seconds}
        entry["gradient_difference"] = found.eager.comparison.gradient_difference
    return entry
