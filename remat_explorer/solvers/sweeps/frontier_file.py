"""Sweep file, version 1: JSON, a list of points, each schedule as what it runs in each stage.

The matrices of a solution file would make this one large: a captured network has thousands of values, a sweep dozens of
points, and S follows from R.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remat_explorer.checker import check
from remat_explorer.documents import quote, require_format, require_keys
from remat_explorer.errors import ScheduleError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.bounds.runs import pack_runs, unpack_runs
from remat_explorer.solvers.sweeps.own_points import OwnPoint

Messages = Mapping[tuple[str, int], str]  # by strategy and budget
FORMAT, VERSION = "remat-explorer/sweep", 1
_KEYS = ("format", "version", "graph", "seconds", "points")
_NUMBERS = ("cost", "peak", "lower_bound", "gap", "seconds")
_POINT = ("strategy", "status", "budget", *_NUMBERS, "solver", "message", "runs")


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
    keys = (*_KEYS, "own_points") if isinstance(document, dict) and "own_points" in document else _KEYS
    require_keys(document, keys, "the sweep file", SolutionError)
    require_format(document, FORMAT, VERSION, SolutionError)
    entry = require_keys(document["graph"], ("name", "sha256"), "the entry 'graph'", SolutionError)
    if entry["sha256"] != graph.sha256:
        raise SolutionError(f"this sweep is for another graph, {entry['name']!r}, than the one given, {graph.name!r}")
    if not isinstance(document["points"], list):
        raise SolutionError(f"the points are not a list: {quote(document['points'])}")
    solutions: list[Solution] = []
    messages: dict[tuple[str, int], str] = {}
    for i, point in enumerate(document["points"]):
        solution = read_point(point, f"point {i}", graph)
        solutions.append(solution)
        if point["message"]:
            messages[solution.strategy, solution.budget] = str(point["message"])
    own = _own_points(document.get("own_points", []), graph)
    return tuple(solutions), messages, read_number(document, "seconds", "the sweep file") or 0.0, own


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
    }
    if with_runs:
        entry["runs"] = None if solution.schedule is None else pack_runs(solution.schedule)
    return entry


def read_point(entry: Any, where: str, graph: Graph) -> Solution:
    """The point of such an object, its schedule checked again.

    Raises:
        SolutionError: naming what is wrong, ``where`` it is.
    """
    return _solution(require_keys(entry, _POINT, where, SolutionError), where, graph)


def _own_points(entries: Any, graph: Graph) -> tuple[OwnPoint, ...]:
    if not isinstance(entries, list):
        raise SolutionError(f"the own points are not a list: {quote(entries)}")
    points = []
    for i, entry in enumerate(entries):
        where = f"own point {i}"
        point = require_keys(entry, (*_POINT, "label"), where, SolutionError)
        solution = _solution(point, where, graph)
        if not isinstance(point["label"], str):
            raise SolutionError(f"the label of {where} is not a string: {quote(point['label'])}")
        if solution.peak != solution.budget:
            raise SolutionError(f"the budget of {where} is {solution.budget}, not its peak, {solution.peak}")
        points.append(OwnPoint.of(solution, point["label"]))
    return tuple(points)


def _solution(point: dict[str, Any], where: str, graph: Graph) -> Solution:
    if point["status"] not in set(Status):
        raise SolutionError(f"the status {quote(point['status'])} of {where} is none of {', '.join(Status)}")
    if isinstance(point["budget"], bool) or not isinstance(point["budget"], int) or point["budget"] < 0:
        raise SolutionError(f"the budget of {where} is not a number of bytes: {quote(point['budget'])}")
    for key in ("strategy", "solver", "message"):
        if not isinstance(point[key], str):
            raise SolutionError(f"the {key} of {where} is not a string: {quote(point[key])}")
    numbers = {key: read_number(point, key, where) for key in _NUMBERS}
    schedule = None if point["runs"] is None else _checked(point, where, graph)
    seconds, bound = numbers["seconds"] or 0.0, numbers["lower_bound"]
    status = Status(point["status"])
    solution = Solution(graph, point["strategy"], status, point["budget"], schedule, bound, seconds, point["solver"])
    for key in ("cost", "peak"):
        if getattr(solution, key) != point[key]:
            actual = getattr(solution, key)
            raise SolutionError(f"{where} says {key} {point[key]!r}, but its schedule has {actual!r}")
    return solution


def read_number(entry: dict[str, Any], key: str, where: str) -> float | None:
    """A number of an object, or None where it is null.

    Raises:
        SolutionError: if it is neither, quoting it.
    """
    value = entry[key]
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise SolutionError(f"the {key} of {where} is not a number: {quote(value)}")
    return value


def _checked(point: dict[str, Any], where: str, graph: Graph) -> Schedule:
    unpacked = unpack_runs(point["runs"], graph, SolutionError)
    try:
        return check(graph, unpacked.R, unpacked.S, point["budget"]).schedule
    except ScheduleError as error:
        raise SolutionError(f"the schedule of {where} is refused: {error}") from None
