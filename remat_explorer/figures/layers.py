"""Operations by the layer that they belong to: forward, gradients and recomputations of one module together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Layers:
    """The layers of a graph, in the order in which the forward pass runs them.

    Attributes:
        names: of the layers.
        of_operation: number of the layer of each operation, int64 of shape (n,).
    """

    names: tuple[str, ...]
    of_operation: np.ndarray

    def sums(self, amounts: np.ndarray) -> np.ndarray:
        """Amounts of operations, summed by layer, of shape (layers,)."""
        return np.bincount(self.of_operation, weights=amounts, minlength=len(self.names))


@memoize_by_identity
def layers_of(graph: Graph) -> Layers:
    """The layers of a graph: its modules, where they are known, else each operation by itself.

    >>> from remat_explorer.instances import linear
    >>> layers_of(linear(1)).names
    ('v0', 'v1', 'v2')
    """
    number: dict[str, int] = {}
    layers = [
        number.setdefault((node.details.module if node.details else "") or node.name, len(number))
        for node in graph.operations
    ]
    return Layers(tuple(number), np.array(layers, dtype=np.int64))


def costs_of(schedule: Schedule) -> np.ndarray:
    """What all runs of each operation cost, float64 of shape (n,)."""
    costs = np.zeros(schedule.graph.n)
    for _, k, code in schedule.sequence:
        costs[k] += schedule.graph.operations[k].implementations[code - 1].cost
    return costs
