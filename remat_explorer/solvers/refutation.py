"""What a file says is proven, held against schedules that are found at once: a bound by itself shows no proof.

A schedule within a budget refutes that there is none, and any bound above its cost. Tried are the schedules of the file
itself, the one that computes everything once, and that of a simulated run. What they do not refute is believed, but
for "infeasible" in the cache: that must be proven again at once, or it is solved anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from remat_explorer.errors import SolutionError, SolverError
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.memory.lowest_peak import least_working_set, limiting_operation
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.registry import STRATEGIES, method_of

REFUTED = 1e-4  # relative excess of a lower bound over a cost beyond which no solver's tolerance explains it
LARGEST = 1000  # operations of a graph on which a run is simulated: milliseconds each


def require_unrefuted(
    graph: Graph, claimed: Sequence[tuple[str, Solution]], schedules: Iterable[Schedule] = ()
) -> None:
    """Refuse what a file says of its points, if a schedule says otherwise.

    Args:
        graph: which all are about.
        claimed: where each stands, as a message names it, and what it claims, its own schedule checked.
        schedules: of the file, checked, beside those of the points.

    Raises:
        SolutionError: naming the claim, and the schedule that refutes it.

    >>> from remat_explorer.instances import linear
    >>> high = Solution(linear(8), "optimal", Status.UNKNOWN, 6, None, 30.0, 0.0)
    >>> require_unrefuted(linear(8), [("point 0", high)])
    Traceback (most recent call last):
        ...
    remat_explorer.errors.SolutionError: point 0 says lower_bound 30.0 within 6 B, but a schedule costs 21.0 there
    """
    own = [solution.schedule for _, solution in claimed if solution.schedule is not None]
    known = [(Plan.peak_of(one), one) for one in (*schedules, *own) if one.is_frontier_advancing]
    at_once: dict[int, list[Schedule]] = {}
    for where, solution in claimed:
        bound = _claimed_bound(solution)
        if bound <= graph.total_cost * (1 + REFUTED) and not graph.has_choices:
            continue  # which nothing costs less than
        budget = solution.budget
        if budget not in at_once:
            at_once[budget] = list(schedules_at_once(graph, budget))
        fitting = [one for peak, one in known if peak <= budget]
        cheaper = [one for one in (*fitting, *at_once[budget]) if one.cost < bound * (1 - REFUTED)]
        if cheaper:
            says = f"lower_bound {bound!r}" if math.isfinite(bound) else f'status "{solution.status}"'
            cost = min(one.cost for one in cheaper)
            raise SolutionError(
                f"{where} says {says} within {format_bytes(budget)}, but a schedule costs {cost!r} there"
            )


def schedules_at_once(graph: Graph, budget: int) -> Iterator[Schedule]:
    """Schedules with stages within a budget that take no search, in default implementations.

    >>> from remat_explorer.instances import linear
    >>> [one.cost for one in schedules_at_once(linear(8), 10)]
    [17.0]
    """
    if checkpoint_all_peak(graph) <= budget:
        yield checkpoint_all(graph)  # and nothing is cheaper
    elif graph.n <= LARGEST and not graph.has_choices:
        try:
            answer = STRATEGIES["dtr"](graph, budget, Limits())
        except SolverError:  # a graph that it does not take
            return
        if answer.schedule is not None and answer.schedule.is_frontier_advancing:
            yield answer.schedule


def is_proven_infeasible(graph: Graph, strategy: str, budget: int) -> bool:
    """Whether it takes no long search to prove that a strategy has no schedule within a budget.

    >>> from remat_explorer.instances import linear
    >>> is_proven_infeasible(linear(8), "optimal", 2), is_proven_infeasible(linear(8), "optimal", 3)
    (True, False)
    """
    method = method_of(strategy)
    if method is None:
        return False
    return budget < method.smallest_budget(graph) or (method.stages and budget < _least_bytes(graph))


@memoize_by_identity
def _least_bytes(graph: Graph) -> int:
    """Bytes into less than which no schedule with stages fits, as far as single moments tell."""
    if graph.has_choices:
        return limiting_operation(CondensedChoices.of(graph)).bytes
    return least_working_set(Condensed.of(graph)).bytes


def _claimed_bound(solution: Solution) -> float:
    """What no schedule within the budget costs less than: infinity where none is said to fit."""
    method = method_of(solution.strategy)
    if solution.status is Status.INFEASIBLE:
        return math.inf if method is not None and method.proves_infeasible(solution.graph) else 0.0
    return solution.lower_bound or 0.0
