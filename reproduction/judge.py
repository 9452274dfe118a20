"""An independent judge of rival schedules: every method at several budgets, beside what is proven at its own peak.

Each schedule passes the one checker. A method is compared with the cheapest schedule within the memory that its own
needs, and with a lower bound there: `judge` gives a `Verdict` for each `Contender` and budget, `Proofs` keeps what is
proven of a graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Any

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ExecutionError, GraphError, SolverError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES, Frontier, Solution, Status, bound_at, solve, sweep

OURS = "optimal"
WAYS: Mapping[str, tuple[dict[str, Any], ...]] = {
    OURS: (),
    "monet": (),  # on graphs with one implementation of each operation this and the next are ours
    "monet-paper": (),
    "pytorch-budget": ({"knapsack": "dp"}, {"knapsack": "greedy"}, {"knapsack": "ilp"}),
}
"""The options with which a strategy is judged, each by itself; without an entry it is judged as it is."""
SAME = 1e-9  # relative difference of two costs that are the same
NONE_FITS = "no schedule within the budget"
NOT_IN_TIME = "no schedule in time"


def judge(
    graph: Graph,
    methods: Iterable[Contender],
    budgets: Sequence[int],
    seconds: float = 2.0,
    proof_seconds: float = 2.0,
    proofs: Proofs | None = None,
    on_progress: Callable[[str], None] = lambda doing: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Verdict]:
    """Every method at every budget, with the distance of its schedule from the optimum at its own peak.

    Of a method that does not ask for the budget, the cheapest of its schedules within the budget counts; where none
    is, the one with the smallest peak, which then exceeds the budget.

    Args:
        graph: of operations with a single implementation.
        methods: who is judged.
        budgets: bytes, resident bytes included.
        seconds: of a method for each budget; one with settings stops to try them when those of all are over.
        proof_seconds: of our search for each peak.
        proofs: what is known of the graph from before; None begins anew.
        on_progress: called with what is done next, in words.
        cancelled: asked between steps; the verdicts that there are are returned.

    Returns:
        A verdict for each method and budget, methods in the order given.

    Raises:
        ScheduleError: if a schedule of a method breaks a rule: nothing is said of it but that.

    >>> from remat_explorer.instances import linear
    >>> from reproduction.judge import contender
    >>> (found,) = judge(linear(8), [contender("chen-sqrt-n")], [6])
    >>> found.cost, found.peak, found.kept, found.ours, found.status
    (21.0, 6, True, 21.0, 'optimal')
    """
    verdicts: list[Verdict] = []
    for method in methods:
        if cancelled():
            break
        on_progress(f"{graph.name}: {method.name}")
        verdicts += _schedules_judged(graph, method, budgets, seconds, cancelled)
    proofs = proofs or Proofs(graph, proof_seconds, cancelled)
    on_progress(f"{graph.name}: proofs")
    proofs.learn(verdict.peak for verdict in verdicts if verdict.peak is not None)
    return [proofs.beside(verdict) for verdict in verdicts]


@dataclass(frozen=True)
class Contender:
    """One method as it is judged.

    Attributes:
        name: what rows are called.
        strategy: a key of `STRATEGIES`.
        options: keyword arguments of the strategy.
    """

    name: str
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)


def contenders() -> tuple[Contender, ...]:
    """Everyone, in the order of the registry.

    >>> names = [contender.name for contender in contenders()]
    >>> "pytorch-budget (ilp)" in names, "optimal" in names
    (True, False)
    """
    found: list[Contender] = []
    for strategy in STRATEGIES:
        for options in WAYS.get(strategy, ({},)):
            name = f"{strategy} ({', '.join(map(str, options.values()))})" if options else strategy
            found.append(Contender(name, strategy, options))
    return tuple(found)


def contender(name: str) -> Contender:
    """The one of a name.

    Raises:
        UnknownNameError: if nobody is called so.

    >>> contender("pytorch-budget (dp)").options
    {'knapsack': 'dp'}
    """
    known = {one.name: one for one in contenders()}
    if name not in known:
        raise UnknownNameError("method", name, known)
    return known[name]


@dataclass(frozen=True)
class Verdict:
    """One method on one graph at one budget.

    Cost and peak are the checker's. The distance from the optimum is that at the method's own peak, and lies between
    `at_least` and `at_most`, which are equal where ours is proven optimal.

    Attributes:
        graph, method: names.
        budget: bytes that were asked for.
        label: the setting of the schedule, in words, or "".
        least: cost of computing everything once.
        cost, peak: of the schedule; None where there is none.
        seconds: that finding it took; of a method with settings, all of them.
        stages: whether the schedule goes stage by stage, which all that is proven is about.
        bound: no schedule with stages costs less within ``peak`` bytes; None where nothing is proven.
        ours, ours_peak, status: cost, peak and status of our schedule within ``peak``; None where there is none.
        problem: why there is no schedule, or "".

    >>> proven = {"bound": 10.5, "ours": 11.0, "ours_peak": 88, "status": "feasible"}
    >>> verdict = Verdict("chain", "by hand", 100, 10.0, 12.0, 90, **proven)
    >>> verdict.kept, round(verdict.at_least, 3), round(verdict.at_most, 3), verdict.fault
    (True, 0.091, 0.143, '')
    """

    graph: str
    method: str
    budget: int
    least: float
    cost: float | None = None
    peak: int | None = None
    seconds: float = 0.0
    label: str = ""
    stages: bool = True
    bound: float | None = None
    ours: float | None = None
    ours_peak: int | None = None
    status: str | None = None
    problem: str = ""

    @property
    def kept(self) -> bool | None:
        """Whether the peak is within the budget; None where there is no schedule."""
        return None if self.peak is None else self.peak <= self.budget

    @property
    def overhead(self) -> float | None:
        """Cost over that of computing everything once."""
        return None if self.cost is None else self.cost / self.least if self.least else 1.0

    @property
    def at_least(self) -> float | None:
        """(cost - ours) / ours: lost for certain, since ours needs no more memory; negative where ours is worse."""
        return None if self.cost is None or not self.ours else self.cost / self.ours - 1

    @property
    def at_most(self) -> float | None:
        """(cost - bound) / bound: more cannot be lost; None where no bound holds for the schedule."""
        return None if self.cost is None or not self.bound or not self.stages else self.cost / self.bound - 1

    @property
    def fault(self) -> str:
        """What refutes a claim of ours, in words, or "".

        >>> Verdict("chain", "m", 9, 10.0, 12.0, 9, bound=13.0, ours=13.0, ours_peak=9, status="optimal").fault
        'costs 12, less than the bound of 13'
        """
        if self.cost is None or not self.stages:
            return ""
        if self.status == Status.INFEASIBLE:
            return f"has a schedule of {self.peak} bytes, which is called infeasible"
        if self.bound is not None and self.cost < self.bound * (1 - SAME):
            return f"costs {self.cost:.9g}, less than the bound of {self.bound:.9g}"
        if self.status == Status.OPTIMAL and self.ours is not None and self.cost < self.ours * (1 - SAME):
            return f"costs {self.cost:.9g}, less than ours of {self.ours:.9g}, which is called optimal"
        return ""

    def to_document(self) -> dict[str, Any]:
        """The fields as a JSON object, without those that have their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @staticmethod
    def from_document(entry: Mapping[str, Any]) -> Verdict:
        """The verdict of a parsed JSON object; what else stands in it is not read."""
        return Verdict(**{field.name: entry[field.name] for field in fields(Verdict) if field.name in entry})


class Proofs:
    """Our answers of one graph, each budget solved once.

    A schedule within a budget fits every larger one, and a bound at a budget holds for every smaller one: both are
    used, never the other way round.

    Args:
        graph: the training graph.
        seconds: of our search at each peak, on average.
        cancelled: asked between steps.
    """

    def __init__(self, graph: Graph, seconds: float, cancelled: Callable[[], bool] | None = None) -> None:
        self.graph = graph
        self._seconds, self._cancelled = seconds, cancelled
        self._known: dict[int, Solution] = {}

    def learn(self, peaks: Iterable[int]) -> None:
        """Solve for the peaks that are not known yet, in this process, with one linear program for all."""
        new = sorted(set(peaks) - self._known.keys())
        if not new:
            return
        with ThreadPoolExecutor(1) as thread:
            frontier = sweep(
                self.graph, new, OURS, thread, time_limit=self._seconds, workers=1, cancelled=self._cancelled
            )
        self._known |= {solution.budget: solution for solution in frontier.solutions}

    def beside(self, verdict: Verdict) -> Verdict:
        """A verdict with what is proven at its peak.

        >>> from remat_explorer.instances import linear
        >>> proofs = Proofs(linear(8), seconds=5.0)
        >>> found = proofs.beside(Verdict("linear8", "by hand", 6, 17.0, cost=22.0, peak=6))
        >>> found.ours, found.bound, found.status, round(found.at_most, 3)
        (21.0, 21.0, 'optimal', 0.048)
        """
        if verdict.peak is None:
            return verdict
        self.learn([verdict.peak])
        frontier = Frontier(self.graph, tuple(self._known[budget] for budget in sorted(self._known)))
        ours = frontier.best(verdict.peak)
        if ours is None:
            here = self._known.get(verdict.peak)
            status = str(here.status) if here is not None else str(Status.UNKNOWN)
            return replace(verdict, bound=bound_at(verdict.peak, frontier.solutions), status=status)
        return replace(verdict, bound=ours.lower_bound, ours=ours.cost, ours_peak=ours.peak, status=str(ours.status))


@dataclass(frozen=True, eq=False)
class _Found:
    """A checked schedule of a method, with the setting that it comes from."""

    schedule: Schedule
    cost: float
    peak: int
    label: str


def _schedules_judged(
    graph: Graph, method: Contender, budgets: Sequence[int], seconds: float, cancelled: Callable[[], bool]
) -> list[Verdict]:
    """Cost, peak and budget of one method, by the checker, with nothing proven yet.

    Raises:
        ScheduleError: as `judge`.
    """

    def verdict(budget: int, found: _Found | None, taken: float, problem: str = "") -> Verdict:
        said = Verdict(graph.name, method.name, budget, graph.total_cost, seconds=taken, problem=problem)
        if found is None:
            return said
        return Verdict(
            graph.name, method.name, budget, graph.total_cost, found.cost, found.peak, taken, found.label,
            found.schedule.is_frontier_advancing,
        )  # fmt: skip

    begun = time.monotonic()
    try:
        if STRATEGIES[method.strategy].candidates is None:
            return [
                verdict(budget, found, taken, problem)
                for budget in budgets
                for found, taken, problem in [_solved(graph, method, budget, seconds, cancelled)]
            ]
        listed = _settings(graph, method, seconds * len(budgets), cancelled)
    except (SolverError, GraphError, ExecutionError) as error:  # the method is not for this graph, or not installed
        return [verdict(budget, None, 0.0, str(error)) for budget in budgets]
    taken = time.monotonic() - begun
    return [verdict(budget, _for_budget(listed, budget), taken, "" if listed else NOT_IN_TIME) for budget in budgets]


def _solved(
    graph: Graph, method: Contender, budget: int, seconds: float, cancelled: Callable[[], bool]
) -> tuple[_Found | None, float, str]:
    """The schedule of a method that asks for the budget, its seconds, and why there is none."""
    solution = solve(graph, budget, method.strategy, seconds, threads=1, cancelled=cancelled, **dict(method.options))
    if solution.schedule is None:
        return None, solution.seconds, NONE_FITS if solution.limit == "" else f"{NONE_FITS}, ended by {solution.limit}"
    checked = check_schedule(solution.schedule, budget)
    return _Found(checked.schedule, checked.cost, checked.peak, ""), solution.seconds, ""


def _settings(graph: Graph, method: Contender, seconds: float, cancelled: Callable[[], bool]) -> list[_Found]:
    """The schedules of a method that does not ask for the budget, each checked."""
    strategy = STRATEGIES[method.strategy]
    strategy.require_graph(method.strategy, graph)
    strategy.load()
    assert strategy.candidates is not None
    begun, found = time.monotonic(), []
    for candidate in strategy.candidates(graph, **method.options):
        checked = check_schedule(candidate.schedule)
        found.append(_Found(checked.schedule, checked.cost, checked.peak, candidate.label))
        if cancelled() or time.monotonic() - begun > seconds:
            break
    return found


def _for_budget(found: Sequence[_Found], budget: int) -> _Found | None:
    """The cheapest within the budget, else the one that exceeds it least; of equals the smaller."""
    within = [one for one in found if one.peak <= budget]
    if within:
        return min(within, key=lambda one: (one.cost, one.peak))
    return min(found, key=lambda one: (one.peak, one.cost), default=None)
