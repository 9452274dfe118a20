"""Ablation file, version 1: JSON, one entry for each set of kinds, with its smallest budget and its points.

Points are those of a sweep file: see `remat_explorer.solvers.sweeps.frontier_file`. What was not reached before an
ablation was cancelled is null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remat_explorer.checker import check
from remat_explorer.documents import quote, read_json, require_format, require_keys, write_text
from remat_explorer.errors import RematError, ScheduleError, SolutionError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution
from remat_explorer.solvers.ablation.ablation import Ablation, Kinds, SmallestBudget, sets_of
from remat_explorer.solvers.bounds.runs import pack_runs, unpack_runs
from remat_explorer.solvers.monet.codes import allowed_codes
from remat_explorer.solvers.sweeps.frontier_file import point_entry, read_number, read_point

FORMAT, VERSION = "remat-explorer/ablation", 1
_KEYS = ("format", "version", "graph", "seconds", "kinds", "budgets", "sets")
_SMALLEST = ("known_feasible", "lower_bound", "runs")


def to_document(ablation: Ablation, with_runs: bool = True) -> dict[str, Any]:
    """The ablation file as a JSON object, or what it says without the schedules.

    >>> from remat_explorer.instances import linear
    >>> to_document(Ablation(linear(2), (), (), {}, {}))["sets"]
    [{'kinds': [], 'smallest': None, 'points': []}]
    """
    sets = []
    for kinds in ablation.sets:
        least = ablation.smallest.get(kinds)
        entry = None
        if least is not None:
            entry = {"known_feasible": least.known_feasible, "lower_bound": least.lower_bound}
            entry |= {"runs": pack_runs(least.schedule)} if with_runs else {}
        points = [point_entry(solution, "", with_runs) for solution in ablation.curve(kinds)]
        sets.append({"kinds": list(kinds), "smallest": entry, "points": points})
    return {
        "format": FORMAT,
        "version": VERSION,
        "graph": {"name": ablation.graph.name, "sha256": ablation.graph.sha256},
        "seconds": ablation.seconds,
        "kinds": list(ablation.kinds),
        "budgets": list(ablation.budgets),
        "sets": sets,
    }


def from_document(document: Any, graph: Graph) -> Ablation:
    """The ablation of a parsed ablation file, every schedule checked again.

    Raises:
        SolutionError: as `Ablation.load`.
    """
    require_keys(document, _KEYS, "the ablation file", SolutionError)
    require_format(document, FORMAT, VERSION, SolutionError)
    entry = require_keys(document["graph"], ("name", "sha256"), "the entry 'graph'", SolutionError)
    if entry["sha256"] != graph.sha256:
        raise SolutionError(
            f"this ablation is for another graph, {entry['name']!r}, than the one given, {graph.name!r}"
        )
    every = _strings(document["kinds"], "the kinds")
    budgets = document["budgets"]
    if not isinstance(budgets, list) or not all(type(budget) is int for budget in budgets):
        raise SolutionError(f"the budgets are not a list of bytes: {quote(budgets)}")
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
        found = [*(point.schedule for point in points), *([smallest[kinds].schedule] if kinds in smallest else [])]
        _require_allowed([schedule for schedule in found if schedule is not None], kinds, where, graph)
    seconds = read_number(document, "seconds", "the ablation file") or 0.0
    return Ablation(graph, every, tuple(budgets), solutions, smallest, seconds)


def save_ablation(ablation: Ablation, path: str | Path) -> Path:
    """Write the ablation file atomically."""
    return write_text(path, json.dumps(to_document(ablation), separators=(",", ":")) + "\n")


def load_ablation(path: str | Path, graph: Graph) -> Ablation:
    """Read an ablation file of ``graph``.

    Raises:
        SolutionError: as `Ablation.load`.
    """
    try:
        return from_document(read_json(path, SolutionError), graph)
    except SolutionError as error:
        raise SolutionError(f"{path}: {error}") from None


def _smallest(entry: Any, where: str, graph: Graph) -> SmallestBudget:
    require_keys(entry, _SMALLEST, f"the smallest budget of {where}", SolutionError)
    unpacked = unpack_runs(entry["runs"], graph, SolutionError)
    try:
        found = SmallestBudget(entry["lower_bound"], check(graph, unpacked.R, unpacked.S).schedule)
    except ScheduleError as error:
        raise SolutionError(f"the smallest schedule of {where} is refused: {error}") from None
    bound = entry["lower_bound"]
    if found.known_feasible != entry["known_feasible"]:
        raise SolutionError(f"the smallest schedule of {where} has a peak of {found.known_feasible}: {quote(entry)}")
    if type(bound) is not int or not 0 <= bound <= found.known_feasible:
        raise SolutionError(f"the smallest budget of {where} has the lower bound {quote(bound)}")
    return found


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
    if not isinstance(entry, list) or not all(isinstance(item, str) for item in entry):
        raise SolutionError(f"{where} are not a list of names: {quote(entry)}")
    return tuple(entry)
