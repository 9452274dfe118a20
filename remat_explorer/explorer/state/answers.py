"""What is known of a graph with alternative implementations, for any set of kinds that may be chosen.

A schedule found with some kinds is one for every set that has the kinds it uses. A lower bound, and that there is no
schedule, are about all schedules of the kinds that were allowed: they hold for every subset of these.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from weakref import WeakKeyDictionary

from remat_explorer.explanations.choices import kinds_used
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution
from remat_explorer.solvers.monet.selections import Selection
from remat_explorer.solvers.sweeps.own_points import OwnPoint, assess_schedule

Record = tuple[frozenset[str], frozenset[str], Solution]  # the kinds that were allowed, that are used, and the answer

_lifted: WeakKeyDictionary[Schedule, Schedule] = WeakKeyDictionary()  # for each schedule, what was last made of it


class Answers:
    """Answers for one graph, each with the kinds of implementations that it was allowed to choose.

    Args:
        graph: the training graph.

    >>> import remat_explorer as rx
    >>> answers = Answers(rx.linear(8))
    >>> answers.add((), [rx.solve(rx.linear(8), 4)])
    >>> answers.answer((), 4).cost, answers.answer(("masks",), 4)
    (26.0, None)
    >>> [solution.lower_bound for solution in answers.usable(("masks",))]
    [None]
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._lock = threading.Lock()
        self._records: list[Record] = []

    def add(self, allowed: Collection[str], solutions: Iterable[Solution]) -> None:
        """Remember checked answers that were found with the kinds ``allowed``."""
        with self._lock:
            ids = {id(solution) for _, _, solution in self._records}
            for solution in solutions:
                if id(solution) not in ids:
                    used = kinds_used(solution.schedule) if solution.schedule is not None else frozenset()
                    self._records.append((frozenset(allowed), used, solution))

    def answer(self, allowed: Collection[str], budget: int) -> Solution | None:
        """The last answer with a schedule to a solve with exactly these kinds within exactly this budget, or None."""
        with self._lock:
            for kinds, _, solution in reversed(self._records):
                if kinds == frozenset(allowed) and solution.budget == budget and solution.schedule is not None:
                    return solution
        return None

    def usable(self, allowed: Collection[str]) -> list[Solution]:
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


def lifted(solution: Solution, selection: Selection) -> Solution:
    """An answer for a graph without choices, as one for the graph that its implementations were selected from.

    Its bound is about schedules of the selected implementations only.
    """
    graph = selection.origin
    schedule = None if solution.schedule is None else lifted_schedule(solution.schedule, selection)
    fields = (solution.strategy, solution.status, solution.budget, schedule, solution.lower_bound, solution.seconds)
    return Solution(graph, *fields, solution.solver, solution.limit)


def lifted_schedule(schedule: Schedule, selection: Selection) -> Schedule:
    """A schedule of selected implementations on the graph with choices; the same object for the same schedule."""
    cached = _lifted.get(schedule)
    if cached is None or cached.graph is not selection.origin:
        cached = _lifted[schedule] = selection.lift(schedule)
    return cached


def lifted_point(point: OwnPoint, selection: Selection) -> OwnPoint:
    """A method's own point, in the same way."""
    return OwnPoint.of(lifted(point, selection), point.label)
