"""Which values memory is made of while each computation of a plan runs: the largest by name, all others together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.plan import Compute, Plan


@dataclass(frozen=True)
class ValueHoldings:
    """Bytes of single values, one column per computation of the plan.

    Attributes:
        values: the values that take most memory for longest, by bytes times computations, descending.
        bytes: int64 of shape (len(values), computations): what is held of each while a computation runs.
    """

    values: tuple[int, ...]
    bytes: np.ndarray


def value_holdings(plan: Plan, count: int) -> ValueHoldings:
    """The ``count`` values that take most of a plan's memory; fewer where there are fewer.

    >>> from remat_explorer.instances import linear
    >>> held = value_holdings(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]), 2)
    >>> held.values, held.bytes.tolist()
    ((0, 1), [[1, 1, 1], [0, 1, 1]])
    """
    spans, computations = _spans(plan)
    if not len(spans):
        return ValueHoldings((), np.zeros((0, computations), dtype=np.int64))
    values, starts, ends = spans.T
    bytes_of = plan.graph.value_bytes
    weight = np.zeros(len(bytes_of), dtype=np.int64)
    np.add.at(weight, values, bytes_of[values] * (ends - starts))
    chosen = [int(v) for v in np.argsort(-weight, kind="stable")[:count] if weight[v]]
    changes = np.zeros((len(chosen), computations + 1), dtype=np.int64)
    for row, v in enumerate(chosen):
        of_v = values == v
        np.add.at(changes[row], starts[of_v], bytes_of[v])
        np.add.at(changes[row], ends[of_v], -bytes_of[v])
    return ValueHoldings(tuple(chosen), changes.cumsum(axis=1)[:, :-1])


def _spans(plan: Plan) -> tuple[np.ndarray, int]:
    """Each version of a value as (value, first, last + 1) in computations, and how many computations there are."""
    since: dict[int, int] = {}
    spans: list[tuple[int, int, int]] = []
    i = 0  # the next computation
    for statement in plan.statements:
        if not isinstance(statement, Compute):
            spans.append((statement.value, since.pop(statement.value), i))
            continue
        if statement.overwrites is not None:
            spans.append((statement.overwrites, since.pop(statement.overwrites), i))
        way = plan.graph.operations[statement.operation].implementations[statement.implementation - 1]
        for v in way.outputs:
            if v not in statement.drops:
                since[v] = i
        i += 1
    spans += [(v, start, i) for v, start in since.items()]
    return np.array(spans, dtype=np.int64).reshape(-1, 3), i
