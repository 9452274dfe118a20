"""Ablation file, version 1: JSON, one entry for each set of kinds, with its smallest budget and its points.

Points are those of a sweep file: see `remat_explorer.solvers.sweeps.frontier_file`. What was not reached before an
ablation was cancelled is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.documents import quote, require_format, require_keys
from remat_explorer.entry_checks import require_bytes, require_list, require_text
from remat_explorer.errors import RematError, ScheduleError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution
from remat_explorer.solvers.ablation.sets_of_kinds import Kinds, sets_of
from remat_explorer.solvers.ablation.smallest_budget import SmallestBudget
from remat_explorer.solvers.bounds.refinement import pack_runs, unpack_runs
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from remat_explorer.solvers.refuting import require_unrefuted
from remat_explorer.solvers.sweeps.frontier_file import point_entry, read_point, read_seconds, require_graph

FORMAT, VERSION = "remat-explorer/ablation", 1
_KEYS = ("format", "version", "graph", "seconds", "kinds", "budgets", "sets")
_SMALLEST = ("known_feasible", "lower_bound", "runs")


def ablation_document(
    graph: Graph,
    kinds: Kinds,
    budgets: tuple[int, ...],
    solutions: Mapping[tuple[Kinds, int], Solution],
    smallest: Mapping[Kinds, SmallestBudget],
    seconds: float,
    with_runs: bool = True,
) -> dict[str, Any]:
    """The ablation file as a JSON object, or what it says without the schedules; see `Ablation.to_document`.

    >>> from remat_explorer.instances import linear
    >>> ablation_document(linear(2), (), (), {}, {}, 0.0)["format"]
    'remat-explorer/ablation'
    """
    sets = []
    for chosen in sets_of(kinds):
        least = smallest.get(chosen)
        entry = None
        if least is not None:
            entry = {"known_feasible": least.known_feasible, "lower_bound": least.lower_bound}
            entry |= {"runs": pack_runs(least.schedule)} if with_runs else {}
        points = [point_entry(solutions[chosen, budget], "", with_runs) for budget in budgets]
        sets.append({"kinds": list(chosen), "smallest": entry, "points": points})
    return {
        "format": FORMAT,
        "version": VERSION,
        "graph": {"name": graph.name, "sha256": graph.sha256},
        "seconds": seconds,
        "kinds": list(kinds),
        "budgets": list(budgets),
        "sets": sets,
    }


def parse_ablation(
    document: Any, graph: Graph
) -> tuple[Kinds, tuple[int, ...], dict[tuple[Kinds, int], Solution], dict[Kinds, SmallestBudget], float]:
    """The fields of `Ablation` after the graph, in their order, of a parsed ablation file; schedules are checked again.

    Raises:
        SolutionError: as `Ablation.load`.
    """
    require_format(document, FORMAT, VERSION, SolutionError)
    require_keys(document, _KEYS, "the ablation file", SolutionError)
    require_graph(document, "ablation", graph)
    every = _strings(document["kinds"], "the entry 'kinds'")
    budgets = require_list(document["budgets"], "the entry 'budgets'", SolutionError)
    for budget in budgets:
        require_bytes(budget, "a budget of the ablation", SolutionError)
    if not isinstance(document["sets"], list) or len(document["sets"]) != len(sets_of(every)):
        raise SolutionError(f"there are not {len(sets_of(every))} sets of kinds: {quote(document['sets'])}")
    solutions: dict[tuple[Kinds, int], Solution] = {}
    smallest: dict[Kinds, SmallestBudget] = {}
    for kinds, item in zip(sets_of(every), document["sets"], strict=True):
        where = f"the set {list(kinds)}"
        require_keys(item, ("kinds", "smallest", "points"), where, SolutionError)
        if _strings(item["kinds"], f"the kinds of {where}") != kinds or not isinstance(item["points"], list):
            raise SolutionError(f"{where} is expected with a list of points, not {quote(item)}")
        points = [read_point(point, f"a point of {where}", graph) for point in item["points"]]
        if [point.budget for point in points] != budgets:
            raise SolutionError(f"the points of {where} are not at the budgets {quote(budgets)}")
        solutions |= {(kinds, point.budget): point for point in points}
        if item["smallest"] is not None:
            smallest[kinds] = _smallest(item["smallest"], where, graph)
        schedules = [*(point.schedule for point in points), *([smallest[kinds].schedule] if kinds in smallest else [])]
        _require_allowed([schedule for schedule in schedules if schedule is not None], kinds, where, graph)
    _require_unrefuted(graph, solutions, smallest)
    return every, tuple(budgets), solutions, smallest, read_seconds(document, "the ablation file")


def _require_unrefuted(
    graph: Graph, solutions: Mapping[tuple[Kinds, int], Solution], smallest: Mapping[Kinds, SmallestBudget]
) -> None:
    """Refuse bounds, on costs or on bytes, that the schedule of a set with no other kinds refutes.

    Raises:
        SolutionError: naming the claim.
    """
    schedules = [(kinds, least.schedule) for kinds, least in smallest.items()]
    schedules += [(kinds, point.schedule) for (kinds, _), point in solutions.items() if point.schedule is not None]
    for kinds in dict.fromkeys((*smallest, *(kinds for kinds, _ in solutions))):
        where = f"the set {list(kinds)}"
        own = [schedule for others, schedule in schedules if set(others) <= set(kinds)]
        points = [(f"a point of {where}", point) for (others, _), point in solutions.items() if others == kinds]
        require_unrefuted(graph, points, own)
        lowest = min(map(Plan.peak_of, own), default=None)
        if kinds in smallest and lowest is not None and smallest[kinds].lower_bound > lowest:
            raise SolutionError(
                f"the smallest budget of {where} has the lower bound {smallest[kinds].lower_bound}, but a schedule "
                f"takes {lowest} bytes"
            )


def _smallest(entry: Any, where: str, graph: Graph) -> SmallestBudget:
    require_keys(entry, _SMALLEST, f"the smallest budget of {where}", SolutionError)
    bound = require_bytes(entry["lower_bound"], f"the lower bound of the smallest budget of {where}", SolutionError)
    unpacked = unpack_runs(entry["runs"], graph, SolutionError)
    try:
        smallest = SmallestBudget(bound, check_schedule(unpacked).schedule)
    except ScheduleError as error:
        raise SolutionError(f"the smallest schedule of {where} is refused: {error}") from None
    if smallest.known_feasible != entry["known_feasible"]:
        raise SolutionError(f"the smallest schedule of {where} has a peak of {smallest.known_feasible}: {quote(entry)}")
    if bound > smallest.known_feasible:
        raise SolutionError(f"the smallest budget of {where} has the lower bound {quote(bound)}")
    return smallest


def _require_allowed(schedules: list[Schedule], kinds: Kinds, where: str, graph: Graph) -> None:
    """Refuse a schedule that runs an implementation of another kind."""
    try:
        codes = allowed_codes(graph, kinds)
    except RematError as error:
        raise SolutionError(f"{where}: {error}") from None
    for schedule in schedules:
        for _, k, code in schedule.sequence:
            if code not in codes[k]:
                node = graph.operations[k]
                name = node.implementations[code - 1].name
                raise SolutionError(f"a schedule of {where} runs {node.name!r} {name!r}, which is of another kind")


def _strings(entry: Any, where: str) -> Kinds:
    return tuple(
        require_text(item, f"one of {where}", SolutionError) for item in require_list(entry, where, SolutionError)
    )
