"""What an ablation found: how much each kind of implementations is worth, alone and all together; and its file.

A *set* is a tuple of kinds in the order of the ablation; the empty one allows default implementations only. A schedule
of one set is one of every larger set, and a bound for a set holds for every smaller one; the same goes for larger and
smaller budgets. So costs never rise with kinds or memory, and bounds never fall without them.

The file, version 1, is JSON: one entry for each set, with its smallest budget and its points, which are those of a
sweep file (`remat_explorer.solvers.sweeps.frontier`). What was not reached before an ablation was cancelled is null.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), Figure 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.documents import quote, read_json, write_json
from remat_explorer.entry_checks import (
    Table,
    as_it_is,
    list_of,
    read_document,
    read_entry,
    require_arguments,
    require_bytes,
    require_list,
    require_text,
)
from remat_explorer.errors import RematError, ScheduleError, SolutionError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.plain_text import one_line
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes, format_bytes, format_overhead, format_share
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import read_seconds
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from remat_explorer.solvers.solution import Solution, Status, pack_runs, require_unrefuted, unpack_runs
from remat_explorer.solvers.solver_interface import checkpoint_all_peak
from remat_explorer.solvers.sweeps.frontier import point_entry, read_point, require_graph

Kinds = tuple[str, ...]
NONE, ALL = "none", "all"


def sets_of(kinds: Kinds) -> tuple[Kinds, ...]:
    """No kind, each alone, and all together, each set once."""
    return tuple(dict.fromkeys([(), *((kind,) for kind in kinds), kinds]))


def kinds_name(kinds: Kinds, every: Kinds) -> str:
    """What a set of kinds is called among all kinds.

    >>> kinds_name((), ("masks", "lean")), kinds_name(("masks", "lean"), ("masks", "lean"))
    ('none', 'all')
    """
    return NONE if not kinds else ALL if kinds == every and len(kinds) > 1 else ", ".join(kinds)


@dataclass(frozen=True, eq=False)
class SmallestBudget:
    """Between which budgets schedules of a set of kinds begin; bytes, resident ones included.

    Attributes:
        lower_bound: no schedule of the set fits into less.
        schedule: the one with the lowest peak that is known.
    """

    lower_bound: int
    schedule: Schedule

    @cached_property
    def known_feasible(self) -> int:
        """The peak of that schedule."""
        return Plan.of(self.schedule).peak

    @property
    def proven(self) -> bool:
        """Whether it is proven to be the smallest."""
        return self.lower_bound >= self.known_feasible


FORMAT, VERSION = "remat-explorer/ablation", 1
_FILE: Table = {
    "graph": as_it_is,
    "seconds": read_seconds,
    "kinds": list_of(require_text),
    "budgets": list_of(require_bytes),
    "sets": require_list,
}
_SET: Table = {"kinds": list_of(require_text), "smallest": as_it_is, "points": require_list}
_SMALLEST: Table = {"known_feasible": as_it_is, "lower_bound": require_bytes, "runs": as_it_is}


def _require_unrefuted(
    graph: Graph, solutions: Mapping[tuple[Kinds, int], Solution], smallest: Mapping[Kinds, SmallestBudget]
) -> None:
    """Refuse bounds, on costs or on bytes, that the schedule of a set with no other kinds refutes."""
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
                f"the smallest budget of {where} has the lower bound "
                f"{exact_bytes(smallest[kinds].lower_bound)}, but a schedule takes {exact_bytes(lowest)}"
            )


def _smallest(entry: Any, where: str, graph: Graph) -> SmallestBudget:
    read = read_entry(entry, f"{where}.smallest", SolutionError, _SMALLEST)
    bound, unpacked = read["lower_bound"], unpack_runs(read["runs"], graph, SolutionError)
    try:
        smallest = SmallestBudget(bound, check_schedule(unpacked).schedule)
    except ScheduleError as error:
        raise SolutionError(f"the smallest schedule of {where} is refused: {error}") from None
    if smallest.known_feasible != read["known_feasible"]:
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


WORTH_TELLING = 5e-4  # gaps from which on the table shows them


@dataclass(frozen=True, eq=False)
class Ablation:
    """Solutions of the joint problem for several sets of kinds, each at several budgets.

    Attributes:
        graph: the graph that was scheduled.
        kinds: the kinds that were tried.
        budgets: bytes, ascending.
        solutions: by set of kinds and budget.
        smallest: the smallest budget of each set, as far as it is known.
        seconds: wall time of the whole.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.ablation.ablation_run import ablation
    >>> print(ablation(linear(8), [4, 6]))
    kinds  smallest budget      4 B      6 B
    none      3 B (30.0 %)  +52.9 %  +23.5 %
    """

    graph: Graph
    kinds: Kinds
    budgets: tuple[int, ...]
    solutions: Mapping[tuple[Kinds, int], Solution]
    smallest: Mapping[Kinds, SmallestBudget]
    seconds: float = 0.0

    @property
    def sets(self) -> tuple[Kinds, ...]:
        """The sets of kinds: none, each alone, and all together."""
        return sets_of(self.kinds)

    def curve(self, kinds: str | Iterable[str] = ALL) -> tuple[Solution, ...]:
        """The solutions of one set of kinds, by budget.

        Args:
            kinds: "none", "all", a kind, or kinds.

        Raises:
            SolutionError: if the ablation has no such set.
        """
        require_arguments(Ablation.curve, locals())
        chosen = self._set(kinds)
        return tuple(self.solutions[chosen, budget] for budget in self.budgets)

    def smallest_budget(self, kinds: str | Iterable[str] = ALL) -> SmallestBudget:
        """The smallest budget of one set of kinds.

        Args:
            kinds: "none", "all", a kind, or kinds.

        Raises:
            SolutionError: if the ablation has no such set, or was cancelled before it came to it.
        """
        require_arguments(Ablation.smallest_budget, locals())
        chosen = self._set(kinds)
        if chosen not in self.smallest:
            raise SolutionError(f"the ablation ended before the smallest budget of {kinds_name(chosen, self.kinds)!r}")
        return self.smallest[chosen]

    def rows(self) -> list[tuple[str, ...]]:
        """The table as text: its heads, then one row for each set of kinds."""
        peak = checkpoint_all_peak(self.graph)
        rows = [("kinds", "smallest budget", *map(format_bytes, self.budgets))]
        for kinds in self.sets:
            least = self.smallest.get(kinds)
            share = "" if least is None else f" ({format_share(least.known_feasible / peak)})"
            size = "" if least is None else format_bytes(least.known_feasible)
            rows.append((kinds_name(kinds, self.kinds), size + share, *(_cell(point) for point in self.curve(kinds))))
        return rows

    def save(self, path: str | Path) -> Path:
        """Write the ablation file atomically."""
        require_arguments(Ablation.save, locals())
        return write_json(path, self.to_document())

    @staticmethod
    def load(path: str | Path, graph: Graph) -> Ablation:
        """Read an ablation file of ``graph``; every schedule in it is checked again.

        Raises:
            SolutionError: if the file is no ablation, belongs to another graph, or says of a schedule what is not so.
        """
        require_arguments(Ablation.load, locals())
        document = read_json(path, SolutionError)
        try:
            return Ablation.from_document(document, graph)
        except SolutionError as error:
            raise SolutionError(f"{one_line(str(path))}: {error}") from None

    def to_document(self, with_runs: bool = True) -> dict[str, Any]:
        """The ablation file as a JSON object, version 1, or what it says without the schedules.

        >>> from remat_explorer.instances import linear
        >>> Ablation(linear(2), (), (), {}, {}).to_document()["sets"]
        [{'kinds': [], 'smallest': None, 'points': []}]
        """
        sets = []
        for chosen in self.sets:
            least = self.smallest.get(chosen)
            entry = None
            if least is not None:
                entry = {"known_feasible": least.known_feasible, "lower_bound": least.lower_bound}
                entry |= {"runs": pack_runs(least.schedule)} if with_runs else {}
            points = [point_entry(self.solutions[chosen, budget], "", with_runs) for budget in self.budgets]
            sets.append({"kinds": list(chosen), "smallest": entry, "points": points})
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": {"name": self.graph.name, "sha256": self.graph.sha256},
            "seconds": self.seconds,
            "kinds": list(self.kinds),
            "budgets": list(self.budgets),
            "sets": sets,
        }

    @staticmethod
    def from_document(document: Any, graph: Graph) -> Ablation:
        """The ablation of a parsed ablation file, every schedule checked again.

        Raises:
            SolutionError: as `load`.
        """
        read = read_document(document, FORMAT, VERSION, SolutionError, _FILE)
        require_graph(read["graph"], "ablation", graph)
        every, budgets = read["kinds"], read["budgets"]
        if len(read["sets"]) != len(sets_of(every)):
            raise SolutionError(f"there are not {len(sets_of(every))} sets of kinds: {quote(read['sets'])}")
        solutions: dict[tuple[Kinds, int], Solution] = {}
        smallest: dict[Kinds, SmallestBudget] = {}
        for i, (kinds, item) in enumerate(zip(sets_of(every), read["sets"], strict=True)):
            where = f"sets[{i}]"
            one = read_entry(item, where, SolutionError, _SET)
            if one["kinds"] != kinds:
                raise SolutionError(f"{where} is expected to be of the kinds {list(kinds)}, not {quote(one['kinds'])}")
            points = [read_point(point, f"{where}.points[{j}]", graph)[0] for j, point in enumerate(one["points"])]
            if tuple(point.budget for point in points) != budgets:
                raise SolutionError(f"the points of {where} are not at the budgets {quote(budgets)}")
            solutions |= {(kinds, point.budget): point for point in points}
            schedules = [point.schedule for point in points if point.schedule is not None]
            if one["smallest"] is not None:
                smallest[kinds] = _smallest(one["smallest"], where, graph)
                schedules.append(smallest[kinds].schedule)
            _require_allowed(schedules, kinds, where, graph)
        _require_unrefuted(graph, solutions, smallest)
        return Ablation(graph, every, budgets, solutions, smallest, read["seconds"])

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *cells in rows:
            right = [f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)]
            lines.append("  ".join([f"{first:<{widths[0]}}", *right]).rstrip())
        return "\n".join(lines)

    def _set(self, kinds: str | Iterable[str]) -> Kinds:
        if isinstance(kinds, str):
            kinds = {NONE: (), ALL: self.kinds}.get(kinds, (kinds,))
        wanted = set(kinds)
        for kind in sorted(wanted.difference(self.kinds)):
            raise UnknownNameError("kind of this ablation", kind, [*self.kinds, NONE, ALL])
        chosen = tuple(kind for kind in self.kinds if kind in wanted)
        if chosen not in self.sets:
            raise SolutionError(f"the ablation has no set {', '.join(chosen)!r}: it has none, each alone, and all")
        return chosen


def _cell(solution: Solution) -> str:
    if solution.schedule is None:
        return "infeasible" if solution.status is Status.INFEASIBLE else "not found"
    gap = "" if solution.gap is not None and solution.gap < WORTH_TELLING else ", no bound"
    if solution.gap is not None and solution.gap >= WORTH_TELLING:
        gap = f" (gap {format_share(solution.gap)})"
    return format_overhead(solution.schedule.overhead) + gap
