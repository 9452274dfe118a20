"""The judge: the schedules of methods at several budgets, checked, beside what is proven at the peak of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ExecutionError, GraphError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.judging.contenders import Contender
from remat_explorer.judging.proofs import Proofs
from remat_explorer.judging.verdict import Verdict
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES, solve

NONE_FITS = "no schedule within the budget"
NOT_IN_TIME = "no schedule in time"


@dataclass(frozen=True, eq=False)
class _Found:
    """A checked schedule of a method, with the setting that it comes from."""

    schedule: Schedule
    cost: float
    peak: int
    label: str


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
    >>> from remat_explorer.judging.contenders import contender
    >>> (found,) = judge(linear(8), [contender("chen-sqrt-n")], [6])
    >>> found.cost, found.peak, found.kept, found.ours, found.status
    (21.0, 6, True, 21.0, 'optimal')
    """
    verdicts: list[Verdict] = []
    for method in methods:
        if cancelled():
            break
        on_progress(f"{graph.name}: {method.name}")
        verdicts += schedules_judged(graph, method, budgets, seconds, cancelled)
    proofs = proofs or Proofs(graph, proof_seconds, cancelled)
    on_progress(f"{graph.name}: proofs")
    proofs.learn(verdict.peak for verdict in verdicts if verdict.peak is not None)
    return [proofs.beside(verdict) for verdict in verdicts]


def schedules_judged(
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
