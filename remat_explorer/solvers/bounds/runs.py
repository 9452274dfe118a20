"""A schedule written as what it runs: short enough for messages and for files with many schedules.

S is left out. It follows from R: a value is retained only for a later read, which never raises cost or memory.
"""

from __future__ import annotations

from typing import Any

from remat_explorer.documents import quote
from remat_explorer.errors import RematError, ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.graph.rules import MOST_IMPLEMENTATIONS
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations

MOST_CELLS = 2**28  # of R or S: one byte each


def pack_runs(schedule: Schedule) -> list[list[int]]:
    """For each stage what it runs, in order; an operation's other implementations as operation + n * (code - 1).

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.checkpoint_all import checkpoint_all
    >>> pack_runs(checkpoint_all(linear(1)))
    [[0], [1], [2]]
    """
    stages: list[list[int]] = [[] for _ in range(schedule.stages)]
    for t, k, code in schedule.sequence:
        stages[t].append(k + schedule.graph.n * (code - 1))
    return stages


def unpack_runs(stages: Any, graph: Graph, error: type[RematError]) -> Schedule:
    """The leanest schedule with the runs of `pack_runs`; whether it is executable is for the checker to say.

    Args:
        stages: what `pack_runs` made.
        graph: the training graph, n operations.
        error: raised if ``stages`` is something else.
    """
    if not isinstance(stages, list) or not stages or not all(_is_stage(stage) for stage in stages):
        raise error(f"the runs of a schedule are not a list of lists of operations: {quote(stages)}")
    most = len(stages) * max(graph.n, len(graph.values))
    if most > MOST_CELLS:
        raise error(f"a schedule of {len(stages)} stages is too large for this graph of {graph.n} operations")
    rows = set[tuple[int, int, int]]()
    for t, stage in enumerate(stages):
        for run in stage:
            code, k = divmod(run, graph.n)
            if code >= MOST_IMPLEMENTATIONS:
                raise error(f"stage {t} of a schedule runs {quote(run)}, which no graph of {graph.n} operations has")
            rows.add((t, k, code + 1))
    try:
        return Schedule.leanest(graph, len(stages), Computations.of(rows))
    except ScheduleError as problem:
        raise error(f"the runs of a schedule are not those of this graph: {problem}") from None


def _is_stage(stage: Any) -> bool:
    return isinstance(stage, list) and all(type(run) is int and run >= 0 for run in stage)
