"""Sweep file, version 1: JSON, a list of points, each schedule as what it runs in each stage.

The matrices of a solution file would make this one large: a captured network has thousands of values, a sweep dozens of
points, and S follows from R.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.claims import Claims
from remat_explorer.documents import require_format, require_keys
from remat_explorer.entry_checks import require_list, require_number, require_text
from remat_explorer.errors import ScheduleError, SolutionError, shown
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution
from remat_explorer.solvers.bounds.refinement import pack_runs, unpack_runs
from remat_explorer.solvers.refuting import require_unrefuted
from remat_explorer.solvers.sweeps.own_points import OwnPoint

Messages = Mapping[tuple[str, int], str]  # by strategy and budget
FORMAT, VERSION = "remat-explorer/sweep", 1
_KEYS = ("format", "version", "graph", "seconds", "points")
_CLAIMS = ("strategy", "status", "budget", "cost", "peak", "lower_bound", "gap", "seconds", "solver")
_POINT = (*_CLAIMS, "message", "runs")


def sweep_document(
    graph: Graph,
    solutions: Sequence[Solution],
    messages: Messages,
    seconds: float,
    own: Sequence[OwnPoint],
    with_runs: bool = True,
) -> dict[str, Any]:
    """The sweep file as a JSON object, or what it says without the schedules; see `Frontier.to_document`.

    >>> from remat_explorer.instances import linear
    >>> sweep_document(linear(2), (), {}, 0.0, ())["format"]
    'remat-explorer/sweep'
    """
    own_points = [point_entry(point, "", with_runs) | {"label": point.label} for point in own]
    return {
        "format": FORMAT,
        "version": VERSION,
        "graph": {"name": graph.name, "sha256": graph.sha256},
        "seconds": seconds,
        "points": [point_entry(s, messages.get((s.strategy, s.budget), ""), with_runs) for s in solutions],
    } | ({"own_points": own_points} if own_points else {})


def parse_sweep(document: Any, graph: Graph) -> tuple[tuple[Solution, ...], Messages, float, tuple[OwnPoint, ...]]:
    """The fields of `Frontier` after the graph, in their order, of a parsed sweep file; schedules are checked again.

    Raises:
        SolutionError: as `Frontier.load`.
    """
    require_format(document, FORMAT, VERSION, SolutionError)
    keys = (*_KEYS, "own_points") if "own_points" in document else _KEYS
    require_keys(document, keys, "the sweep file", SolutionError)
    require_graph(document, "sweep", graph)
    solutions: list[Solution] = []
    messages: dict[tuple[str, int], str] = {}
    for i, point in enumerate(require_list(document["points"], "the entry 'points'", SolutionError)):
        solution = read_point(point, f"point {i}", graph)
        solutions.append(solution)
        if point["message"]:
            messages[solution.strategy, solution.budget] = point["message"]
    own = _own_points(document.get("own_points", []), graph)
    claimed = [(f"point {i}", solution) for i, solution in enumerate(solutions)]
    require_unrefuted(graph, claimed, [point.schedule for point in own if point.schedule is not None])
    return tuple(solutions), messages, read_seconds(document, "the sweep file"), own


def point_entry(solution: Solution, message: str = "", with_runs: bool = True) -> dict[str, Any]:
    """A point as a JSON object, or what is said of it without its schedule.

    Args:
        solution: the point.
        message: why it has no schedule, or that its search was lost; "" where there is nothing to say.
        with_runs: whether the schedule is a part of it.
    """
    entry: dict[str, Any] = {
        "strategy": solution.strategy,
        "status": str(solution.status),
        "budget": solution.budget,
        "cost": solution.cost,
        "peak": solution.peak,
        "lower_bound": solution.lower_bound,
        "gap": solution.gap,
        "seconds": solution.seconds,
        "solver": solution.solver,
        "message": message,
        **({"limit": solution.limit} if solution.limit else {}),
    }
    if with_runs:
        entry["runs"] = None if solution.schedule is None else pack_runs(solution.schedule)
    return entry


def read_point(entry: Any, where: str, graph: Graph) -> Solution:
    """The point of such an object, its schedule checked again.

    Raises:
        SolutionError: naming what is wrong, ``where`` it is.
    """
    return _solution(require_keys(entry, _keys_of(entry), where, SolutionError), where, graph)


def _keys_of(entry: Any) -> tuple[str, ...]:
    limited = isinstance(entry, dict) and "limit" in entry
    return (*_POINT, "limit") if limited else _POINT


def _own_points(entries: Any, graph: Graph) -> tuple[OwnPoint, ...]:
    points = []
    for i, entry in enumerate(require_list(entries, "the entry 'own_points'", SolutionError)):
        where = f"own point {i}"
        point = require_keys(entry, (*_keys_of(entry), "label"), where, SolutionError)
        solution = _solution(point, where, graph)
        require_text(point["label"], f"the label of {where}", SolutionError)
        if solution.peak != solution.budget:
            raise SolutionError(f"the budget of {where} is {solution.budget}, not its peak, {solution.peak}")
        points.append(OwnPoint.of(solution, point["label"]))
    return tuple(points)


def _solution(point: dict[str, Any], where: str, graph: Graph) -> Solution:
    claims = Claims.of(point, where)
    require_text(point["message"], f"the message of {where}", SolutionError)
    schedule = None if point["runs"] is None else _checked(point, where, graph)
    solution = Solution.claimed(claims, graph, schedule)
    claims.require_true(solution.cost, solution.peak, where)
    return solution


def read_seconds(document: dict[str, Any], where: str) -> float:
    """The time that a sweep or an ablation took; 0 where it is null.

    Raises:
        SolutionError: if it is no number of seconds, quoting it.
    """
    seconds = document["seconds"]
    return 0.0 if seconds is None else require_number(seconds, f"the seconds of {where}", SolutionError)


def require_graph(document: dict[str, Any], what: str, graph: Graph) -> None:
    """Refuse a file that is about another graph.

    Raises:
        SolutionError: naming both.
    """
    entry = require_keys(document["graph"], ("name", "sha256"), "the entry 'graph'", SolutionError)
    if entry["sha256"] != graph.sha256:
        name = shown(entry["name"])
        raise SolutionError(f"this {what} is for another graph, {name}, than the one given, {graph.name!r}")


def _checked(point: dict[str, Any], where: str, graph: Graph) -> Schedule:
    unpacked = unpack_runs(point["runs"], graph, SolutionError)
    try:
        return check_schedule(unpacked, point["budget"]).schedule
    except ScheduleError as error:
        raise SolutionError(f"the schedule of {where} is refused: {error}") from None
