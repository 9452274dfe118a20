"""Memory at a point of the joint problem, fractional or not, without the columns L: to see which rows are missing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from remat_explorer.solvers.monet.joint_columns import JointColumns


def memory_at(
    joint: JointColumns, local: Callable[[int, int], list[int]], t: int, values: np.ndarray
) -> dict[int, float]:
    """Bytes in memory while each operation that can run in stage t runs, by (e), MONeT's (1) to (3), with L smallest.

    Args:
        joint: the columns.
        local: groups that count as alive while an operation runs in a stage, by stage and operation.
        t: the stage.
        values: of the columns.
    """
    problem, bytes_of = joint.problem, joint.problem.bytes.astype(float)
    starts = np.array([joint.held(t, v).at(values) for v in range(problem.groups)])
    alive = np.array([joint.held(t + 1, v).at(values) for v in range(problem.groups)])
    memory: dict[int, float] = {}
    for k in range(int(joint.own[t]), -1, -1):
        if (t, k) not in joint.delta:
            continue
        ways = [(way, part.at(values)) for way, part in joint.delta[t, k]]
        memory[k] = float(problem.base[t])
        use = np.zeros(problem.groups)
        for way, share in ways:
            use[list(way.inputs)] += share
            memory[k] += problem.during(way) * share
            if way.credit:
                memory[k] -= way.credit * min(share, 1 - alive[way.overwritten])
        alive = np.maximum(alive, use)
        present = np.where(problem.producer < k, alive, starts)
        if groups := local(t, k):
            present[groups] = np.maximum(present[groups], sum(share for _, share in ways))
        memory[k] += float(present @ bytes_of)
    return memory
