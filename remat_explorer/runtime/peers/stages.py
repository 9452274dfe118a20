"""From a sequence of operations to stages, and from there to a schedule where it is one."""

from __future__ import annotations

from collections.abc import Sequence

from remat_explorer.checker import check_schedule
from remat_explorer.errors import ScheduleError
from remat_explorer.plan import Compute, Plan
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations


def staged(sequence: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each computation as (stage, operation, implementation), the stages of a frontier-advancing schedule.

    A stage ends with the first run of an operation, whose number it has; the repetitions before belong to it. Stages
    never go back, also where first runs are not in the order of the numbers.

    >>> staged([0, 1, 0, 2, 3])
    [(0, 0, 1), (1, 1, 1), (2, 0, 1), (2, 2, 1), (3, 3, 1)]
    """
    first = {k: place for place, k in reversed(list(enumerate(sequence)))}
    stages, stage = [0] * len(sequence), max(sequence, default=0)
    for place, k in reversed(list(enumerate(sequence))):
        if first[k] == place:
            stage = min(stage, k)
        stages[place] = stage
    return [(stage, k, 1) for stage, k in zip(stages, sequence, strict=True)]


def in_order(sequence: Sequence[int]) -> list[int]:
    """The same computations with first runs in the order of their numbers: an operation waits for those before it.

    What is traced may differ from that order, where weight gradients go before input gradients.

    >>> in_order([0, 2, 1, 0, 3])
    [0, 1, 2, 0, 3]
    """
    ordered: list[int] = []
    waiting: set[int] = set()
    following = 0
    for k in sequence:
        if k < following:
            ordered.append(k)
        waiting.add(k)
        while following in waiting:
            ordered.append(following)
            following += 1
    return ordered


def schedule_of(plan: Plan) -> Schedule | None:
    """The schedule with the computations of a plan, checked; None where its stages are no rows of R.

    Rows of R run in the order of the operations' numbers, and so do first runs: where a plan has them in another order,
    the schedule's peak differs a little from the plan's.

    >>> from remat_explorer.instances import linear
    >>> graph = linear(1)
    >>> schedule_of(Plan.from_sequence(graph, staged([0, 1, 0, 2]))).R.tolist()
    [[1, 0, 0], [0, 1, 0], [1, 0, 1]]
    >>> schedule_of(Plan.from_sequence(graph, staged([0, 1, 0, 0, 2]))) is None
    True
    """
    graph = plan.graph
    runs = [statement for statement in plan.statements if isinstance(statement, Compute)]
    computed = set(staged(in_order([run.operation for run in runs])))
    schedule = Schedule.leanest(graph, graph.n, Computations.of(computed))
    if len(computed) != len(runs) or not schedule.is_frontier_advancing:
        return None
    try:
        return check_schedule(schedule).schedule
    except ScheduleError:
        return None
