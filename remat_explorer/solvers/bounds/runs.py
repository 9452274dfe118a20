"""A schedule written as what it runs: short enough for messages and for files with many schedules.

S is left out. It follows from R: a value is retained only for a later read, which never raises cost or memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from remat_explorer.documents import quote
from remat_explorer.errors import RematError, ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule


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
    R = np.zeros((len(stages), graph.n), dtype=np.int64)
    for t, stage in enumerate(stages):
        for run in stage:
            code, k = divmod(run, graph.n)
            R[t, k] = code + 1
    try:
        return Schedule(graph, R, np.zeros((len(R), len(graph.values)))).compact()
    except ScheduleError as problem:
        raise error(f"the runs of a schedule are not those of this graph: {problem}") from None


def _is_stage(stage: Any) -> bool:
    return isinstance(stage, list) and all(isinstance(run, int) and run >= 0 for run in stage)
