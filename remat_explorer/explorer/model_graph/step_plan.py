"""A plan as the browser replays it: what each computation puts into memory, and what is freed behind it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from remat_explorer.plan import Compute, Plan

NONE = -1  # where a computation overwrites nothing


def step_plan(plan: Plan) -> np.ndarray:
    """The computations of a plan, one behind the other, as whole numbers.

    Each is: stage, operation, implementation (from 0), 1 where it runs again or else 0, the value that it overwrites or
    -1; then three lists, each behind its length: the results that stay, the results that are dropped when it is done,
    and the values that are freed before the next computation.

    Args:
        plan: its statements begin with a computation.

    Returns:
        int32, of as many numbers as that takes.

    >>> from remat_explorer.instances import linear
    >>> step_plan(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])).tolist()
    [0, 0, 0, 0, -1, 1, 0, 0, 0, 1, 1, 0, 0, -1, 1, 1, 0, 0, 2, 2, 0, 0, -1, 1, 2, 0, 3, 0, 1, 2]
    """
    numbers: list[int] = []
    freed: list[int] = []
    heads: list[tuple[Compute, list[int]]] = []
    for statement in plan.statements:
        if isinstance(statement, Compute):
            freed = []
            heads.append((statement, freed))
        else:
            freed.append(statement.value)
    for statement, after in heads:
        results = plan.graph.outputs(statement.operation, statement.implementation)
        stay = [value for value in results if value not in statement.drops]
        overwrites = NONE if statement.overwrites is None else statement.overwrites
        numbers += [statement.stage, statement.operation, statement.implementation - 1, int(not statement.first)]
        numbers.append(overwrites)
        for values in (stay, statement.drops, after):
            numbers += _counted(values)
    return np.array(numbers, dtype="<i4")


def _counted(values: Iterable[int]) -> list[int]:
    listed = list(values)
    return [len(listed), *listed]
