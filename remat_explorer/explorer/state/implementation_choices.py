"""Which implementations may be chosen ("none", "exact", "all", or kinds), and what is known for any set of kinds.

A schedule found with some kinds is one for every set that has the kinds it uses. A lower bound, and that there is no
schedule, are about all schedules of the kinds that were allowed: they hold for every subset of these.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from remat_explorer.capture_options import KINDS, kinds_of
from remat_explorer.errors import UnknownNameError
from remat_explorer.explanations import is_exact, kinds_in, kinds_used
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import OwnPoint, Selection, Solution, assess_schedule

NONE, EXACT, ALL = "none", "exact", "all"
_NAMED = (NONE, EXACT, ALL)
Implementations = str | tuple[str, ...]
_Record = tuple[frozenset[str], frozenset[str], Solution]  # the kinds that were allowed, that are used, and the answer
_LIFTED: WeakKeyDictionary[Schedule, Schedule] = WeakKeyDictionary()  # for each schedule, what was last made of it


def parse_implementations(given: str | Iterable[str] | None, graph: Graph | None = None) -> Implementations:
    """A choice of implementations as the state keeps it.

    Args:
        given: "none" or None, "exact", "all", a kind, or kinds.
        graph: whose own kinds may be named, besides those that can be captured.

    Raises:
        UnknownNameError: if there is no such kind.

    >>> parse_implementations(["pooling", "masks"]), parse_implementations(None), parse_implementations("exact")
    (('masks', 'pooling'), 'none', 'exact')
    """
    if given is None or (isinstance(given, str) and given in _NAMED):
        return given or NONE
    chosen = {given} if isinstance(given, str) else set(given)
    kinds = tuple(dict.fromkeys([*KINDS, *(kinds_in(graph) if graph is not None else ())]))
    for kind in sorted(map(str, chosen)):
        if kind not in kinds:
            raise UnknownNameError("kind of implementations", kind, [*kinds, *_NAMED])
    return tuple(kind for kind in kinds if kind in chosen)


def allowed_kinds(graph: Graph | None, implementations: Implementations) -> tuple[str, ...]:
    """The kinds of a graph's implementations that may be chosen.

    >>> from remat_explorer.instances import linear
    >>> allowed_kinds(linear(3), "all")
    ()
    """
    if graph is None or not graph.has_choices or implementations == NONE:
        return ()
    there = kinds_in(graph)
    if implementations == ALL:
        return there
    if implementations == EXACT:
        return tuple(kind for kind in there if is_exact(graph, kind))
    return tuple(kind for kind in there if kind in implementations)


def kinds_to_capture(implementations: Implementations) -> tuple[str, ...]:
    """The kinds that a model is captured with, so that others can be tried without capturing it again.

    Whoever chooses kinds is likely to try others: all of them are captured, the exact ones where only these are chosen.

    >>> kinds_to_capture("none"), kinds_to_capture(("masks",)) == kinds_to_capture("exact")
    ((), True)
    """
    if implementations == NONE:
        return ()
    if isinstance(implementations, str):
        return kinds_of(implementations)
    exact = kinds_of(EXACT)
    return exact if set(implementations) <= set(exact) else kinds_of(ALL)


def needs_capture(graph: Graph, implementations: Implementations) -> bool:
    """Whether a captured graph has to be captured anew for other kinds, or for none."""
    captured = graph.options.implementations if graph.options is not None else ()
    if implementations == NONE:
        return bool(captured)
    wanted = kinds_of(implementations)
    return not captured or not set(wanted) <= set(captured)


def monet_option(graph: Graph, kinds: Iterable[str]) -> Any:
    """What the strategy "monet" takes as ``implementations`` for these kinds of a graph's implementations.

    >>> from remat_explorer.instances import linear
    >>> monet_option(linear(3), ())
    'all'
    """
    chosen = tuple(kinds)
    return ALL if set(chosen) == set(kinds_in(graph)) else sorted(chosen)


def describe_kinds(graph: Graph, kinds: Iterable[str]) -> str:
    """A set of kinds in words.

    >>> from remat_explorer.instances import linear
    >>> describe_kinds(linear(3), ())
    'default implementations'
    """
    chosen = tuple(kinds)
    if not chosen:
        return "default implementations"
    if set(chosen) == set(kinds_in(graph)):
        return "all kinds of implementations"
    return f"implementations of {', '.join(chosen)}"


class KnownSolutions:
    """Answers for one graph, each with the kinds of implementations that it was allowed to choose.

    Args:
        graph: the training graph.

    >>> import remat_explorer as rx
    >>> known = KnownSolutions(rx.linear(8))
    >>> known.add((), [rx.solve(rx.linear(8), 4)])
    >>> known.last_solve((), 4).cost, known.last_solve(("masks",), 4)
    (26.0, None)
    >>> [solution.lower_bound for solution in known.valid_for(("masks",))]
    [None]
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._lock = threading.Lock()
        self._records: list[_Record] = []

    def add(self, allowed: Collection[str], solutions: Iterable[Solution]) -> None:
        """Remember checked answers that were found with the kinds ``allowed``."""
        with self._lock:
            ids = {id(solution) for _, _, solution in self._records}
            for solution in solutions:
                if id(solution) not in ids:
                    used = kinds_used(solution.schedule) if solution.schedule is not None else frozenset()
                    self._records.append((frozenset(allowed), used, solution))

    def last_solve(self, allowed: Collection[str], budget: int) -> Solution | None:
        """The last answer with a schedule to a solve with exactly these kinds within exactly this budget, or None."""
        with self._lock:
            for kinds, _, solution in reversed(self._records):
                if kinds == frozenset(allowed) and solution.budget == budget and solution.schedule is not None:
                    return solution
        return None

    def valid_for(self, allowed: Collection[str]) -> list[Solution]:
        """What the answers say of schedules with the kinds ``allowed``, no more than is true of them."""
        with self._lock:
            records = list(self._records)
        now, solutions = frozenset(allowed), []
        for kinds, used, solution in records:
            proves = now <= kinds
            schedule = solution.schedule if used <= now else None
            bound = solution.lower_bound if proves else None
            if schedule is solution.schedule and proves:
                solutions.append(solution)
            elif schedule is not None or bound is not None:
                solutions.append(assess_schedule(solution, solution.budget, schedule, bound))
        return solutions


def lift_solution(solution: Solution, selection: Selection) -> Solution:
    """An answer for a graph without choices, as one for the graph that its implementations were selected from.

    Its bound is about schedules of the selected implementations only.
    """
    graph = selection.origin
    schedule = None if solution.schedule is None else lift_schedule(solution.schedule, selection)
    fields = (solution.strategy, solution.status, solution.budget, schedule, solution.lower_bound, solution.seconds)
    return Solution(graph, *fields, solution.solver, solution.limit)


def lift_schedule(schedule: Schedule, selection: Selection) -> Schedule:
    """A schedule of selected implementations on the graph with choices; the same object for the same schedule."""
    cached = _LIFTED.get(schedule)
    if cached is None or cached.graph is not selection.origin:
        cached = _LIFTED[schedule] = selection.lift(schedule)
    return cached


def lift_point(point: OwnPoint, selection: Selection) -> OwnPoint:
    """A method's own point, in the same way."""
    return OwnPoint.of(lift_solution(point, selection), point.label)
