"""MOCCASIN: retention intervals as a constraint program on CP-SAT.

Bartan, Li, Teague, Lott and Dilkina, "Moccasin: Efficient Tensor Rematerialization for Neural Networks", ICML 2023,
written anew from the paper (`remat_explorer.solvers.retention.program` names the differences). PyPI's package of that
name is another thing. It needs ortools, the extra ``moccasin``, and runs it in a process of its own.

It is optimal of its problem: at most C runs of each operation, in a fixed topological order. A schedule outside of it
runs some operation C more times at least, so that the lower bound on all schedules is the smaller one of the program's
bound and the cost of the cheapest C repetitions.
"""

from __future__ import annotations

import math

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Incumbent, Limits
from remat_explorer.solvers.checkpoint_all import checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.heuristics.segmentation import whole_number
from remat_explorer.solvers.method import Method, Support, cheapest_within
from remat_explorer.solvers.retention.program import CpSatProcess, require_ortools
from remat_explorer.solvers.strategies.greedy import LINEARIZED

MOST_RUNS = 2  # C of the paper's experiments
FIRST = 0.2  # share of the time for a schedule to begin with


def solve_moccasin(graph: Graph, budget: int, limits: Limits, most_runs: int = MOST_RUNS) -> Answer:
    """The cheapest schedule within the budget in which no operation runs more than C times.

    Args:
        graph: the training graph, one implementation per operation.
        budget: bytes, resident bytes included.
        limits: time, threads, and whom to tell.
        most_runs: C, the retention intervals of each operation.

    Returns:
        The schedule and a lower bound for all schedules. The constraint program begins with what linearized-greedy
        finds in a fifth of the time, and never ends with a dearer one.

    Raises:
        SolverError: if ortools is not installed, ``most_runs`` is no number of runs, or an operation has several
            implementations.

    >>> from remat_explorer.instances import linear
    >>> answer = solve_moccasin(linear(6), 5, Limits(), most_runs=3)
    >>> answer.schedule.cost, answer.lower_bound
    (16.0, 16.0)
    """
    most_runs = whole_number("most_runs", most_runs, 1, "runs of an operation")
    condensed, least = Condensed.of(graph), graph.total_cost
    require_ortools()
    incumbent = Incumbent(limits, bound=least)
    if checkpoint_all_peak(graph) <= budget:
        incumbent.keep(checkpoint_all(graph))
        return incumbent.answer()
    assert LINEARIZED.candidates is not None
    incumbent.keep(cheapest_within(LINEARIZED.candidates(graph), budget, limits.share(FIRST)).schedule)
    if limits.over:
        return Answer(incumbent.schedule, least)
    incumbent.tell("starting CP-SAT")
    with CpSatProcess() as process:
        outcome = process.solve(condensed, budget, most_runs, limits, incumbent)
    again = [condensed.costs[k] for k in range(graph.n - 1) if condensed.outputs[k]]
    beyond = least + most_runs * float(min(again)) if again else math.inf
    if outcome.bound is not None:
        incumbent.raise_bound(max(least, min(outcome.bound, beyond)))
    incumbent.tell("done")
    limit = _ended(outcome.bound, most_runs) if outcome.ended and outcome.bound is not None else ""
    known = None if math.isinf(incumbent.bound) else incumbent.bound
    return Answer(incumbent.schedule, known, infeasible=known is None, limit=limit)


def _ended(bound: float, most_runs: int) -> str:
    """What a search that ended has proven of its own problem, in words after "ended by"."""
    problem = f"at most {most_runs} runs of an operation"
    if math.isinf(bound):
        return f"its own problem, {problem}: no such schedule fits"
    return f"its own problem, {problem}: no such schedule costs less than {bound:.6g}"


METHOD = Method(
    solve_moccasin,
    "retention intervals as a constraint program: the best schedule in which no operation runs more than most_runs "
    "times",
    "Bartan et al. 2023, ICML",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("most_runs",),
    threads=2,
    load=require_ortools,
    symbol="arrow-wide",
)
