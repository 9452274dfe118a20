"""The layers of the memory timeline, at no more places than can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from remat_explorer.figures.memory_map import AnyPlan, holdings
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Compute

LAYERS = ("resident", "kept", "temporaries", "gradients")  # the lowest first


@dataclass(frozen=True)
class Stack:
    """What memory is made of while each computation of a plan runs.

    Attributes:
        plan: c computations.
        bytes: int64 of shape (layers, c), in the order of `LAYERS`.
        statement: index of each computation among the plan's statements.
        stage: stage of each computation.
    """

    plan: AnyPlan
    bytes: np.ndarray
    statement: np.ndarray
    stage: np.ndarray

    @cached_property
    def total(self) -> np.ndarray:
        """Predicted memory while each computation runs, bytes."""
        return self.bytes.sum(axis=0)

    @cached_property
    def computations(self) -> tuple[Compute, ...]:
        """The plan's statements without those that free."""
        return tuple(statement for statement in self.plan.statements if isinstance(statement, Compute))

    def places(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """At most about ``most`` groups of neighbouring computations.

        Returns:
            The first computation of each group with the number of all at the end, and of each group the computation
            at which memory is highest, so that no peak is lost.

        >>> from remat_explorer.instances import linear
        >>> from remat_explorer.plan import Plan
        >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
        >>> [array.tolist() for array in stack(plan).places(2)]
        [[0, 2, 3], [1, 2]]
        """
        count = len(self.stage)
        size = max(1, -(-count // most))
        edges = np.append(np.arange(0, count, size), count)
        if size == 1:
            return edges, edges[:-1]
        padded = np.full(size * (len(edges) - 1), -1, dtype=np.int64)
        padded[:count] = self.total
        return edges, edges[:-1] + padded.reshape(-1, size).argmax(axis=1)

    def span(self, stage: int | None) -> tuple[float, float]:
        """Where a stage's computations begin and end on the timeline's axis; (0, 0) when it has none."""
        inside = np.flatnonzero(self.stage == stage)
        return (float(inside[0]), float(inside[-1] + 1)) if len(inside) else (0.0, 0.0)


def host_stack(plan: TransferPlan) -> Stack:
    """The copies on the host while each computation of a plan runs, as a single layer.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.offload import Transfers
    >>> events = [("compute", 0, 0), ("send", 0, 0), ("compute", 1, 1), ("fetch", 2, 0), ("compute", 2, 2)]
    >>> host_stack(TransferPlan.from_events(linear(1), Transfers(1, 1), events)).total.tolist()
    [0, 1, 1]
    """
    runs = [i for i, statement in enumerate(plan.statements) if isinstance(statement, Compute)]
    layers = np.zeros((len(LAYERS), len(runs)), dtype=np.int64)
    layers[1] = np.append(0, plan.timeline.host)[runs]
    return Stack(plan, layers, np.array(runs), np.array([plan.statements[i].stage for i in runs]))


def stack(plan: AnyPlan) -> Stack:
    """Split the predicted memory of a plan into layers.

    Args:
        plan: c computations.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.plan import Plan
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> stack(plan).total.tolist()
    [1, 2, 3]
    """
    parts = holdings(plan)
    layers = np.array([getattr(parts, name) for name in LAYERS])
    return Stack(plan, layers, parts.statement, parts.stage)
