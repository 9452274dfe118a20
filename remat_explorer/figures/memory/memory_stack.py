"""The layers of the memory timeline, by kind or by value, at no more places than can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from remat_explorer.figures.memory.holdings import holdings
from remat_explorer.figures.memory.value_holdings import value_holdings
from remat_explorer.plan import Compute, Plan

Stacking = Literal["kind", "value"]
PARTS = ("resident", "kept", "temporaries", "gradients")
LARGEST = 7  # values with a layer of their own; the palette has as many hues
LAYERS = LARGEST + 2  # with resident bytes below them and all other values above


@dataclass(frozen=True)
class Stack:
    """What memory is made of while each computation of a plan runs.

    Attributes:
        plan: c computations.
        by: "kind" or "value".
        names: of the layers, the lowest first.
        values: the value of each layer, or -1 where it is no single value.
        bytes: int64 of shape (layers, c).
        statement: index of each computation among the plan's statements.
        stage: stage of each computation.
    """

    plan: Plan
    by: Stacking
    names: tuple[str, ...]
    values: tuple[int, ...]
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


def stack(plan: Plan, by: Stacking = "kind") -> Stack:
    """Split the predicted memory of a plan into layers.

    Args:
        plan: c computations.
        by: "kind" for resident, kept, temporaries and gradients; "value" for the values that take most memory for
            longest, between resident bytes and all others with workspace.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> stack(plan).total.tolist(), stack(plan, "value").names
    ([1, 2, 3], ('resident', 'v0', 'v1', 'v2', 'other'))
    """
    parts, graph = holdings(plan), plan.graph
    if by == "kind":
        layers = np.array([getattr(parts, name) for name in PARTS])
        return Stack(plan, by, PARTS, (-1,) * len(PARTS), layers, parts.statement, parts.stage)
    held = value_holdings(plan, LARGEST)
    other = parts.total - parts.resident - held.bytes.sum(axis=0)
    names = ("resident", *(graph.values[v].name for v in held.values), "other")
    layers = np.vstack([parts.resident, held.bytes, other])
    return Stack(plan, by, names, (-1, *held.values, -1), layers, parts.statement, parts.stage)
