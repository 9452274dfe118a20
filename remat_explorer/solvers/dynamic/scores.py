"""What evicting a value will cost: the numerators of Dynamic Tensor Rematerialization's heuristics.

A heuristic evicts the value with the least h = c / (m s): c is what its recomputation costs, m its bytes, s its
staleness, the time since it was last read or computed. The three differ in c:

* local: the cost of the operation that computes it;
* full: and of all operations of its evicted neighbourhood e*: the evicted values that must come back before it can be
  computed, and those that need it to come back;
* equivalence classes: e* without directions. Evicted values that are connected form a class, kept by union-find, with
  the sum of its costs; a value that comes back takes its cost out of its class, but does not split it.

Source: Kirisame et al., Dynamic Tensor Rematerialization (ICLR 2021), sections 2 and 4.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from remat_explorer.solvers.condensed import Condensed


class Neighbours:
    """Which groups of values are computed from which.

    Attributes:
        parents: for each group those that its operation reads.
        children: for each group those of the operations that read it.
        costs: of the operation that computes each group, float of shape (groups,).
    """

    def __init__(self, condensed: Condensed) -> None:
        self.parents = [condensed.inputs[k] for k in condensed.producer]
        self.children = [tuple(u for k in readers for u in condensed.outputs[k]) for readers in condensed.readers]
        self.costs = condensed.costs[condensed.producer]


class Score(Protocol):
    """The numerator of a heuristic, kept up to date by what is told to it."""

    def evicted(self, v: int) -> None:
        """Group v has left memory."""
        ...

    def returned(self, v: int) -> None:
        """Group v, which was evicted, is in memory again."""
        ...

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """What the recomputation of each of these groups, which are in memory, would cost."""
        ...


class LocalCost:
    """The cost of the operation alone."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._costs = neighbours.costs

    def evicted(self, v: int) -> None:
        """Nothing changes."""

    def returned(self, v: int) -> None:
        """Nothing changes."""

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """See `Score.costs`."""
        return self._costs[groups]


class NeighbourhoodCost:
    """The cost of the operation and of the evicted neighbourhood e*."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._gone = np.zeros(len(neighbours.costs), dtype=bool)
        self._sums: np.ndarray | None = None

    def evicted(self, v: int) -> None:
        """See `Score.evicted`."""
        self._gone[v], self._sums = True, None

    def returned(self, v: int) -> None:
        """See `Score.returned`."""
        self._gone[v], self._sums = False, None

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """See `Score.costs`."""
        if self._sums is None:
            neighbours = self._neighbours
            before = self._reached(neighbours.parents, range(len(self._gone)))
            after = self._reached(neighbours.children, reversed(range(len(self._gone))))
            self._sums = neighbours.costs + (before | after) @ neighbours.costs
        return self._sums[groups]

    def _reached(self, steps, order) -> np.ndarray:
        """Which evicted groups each group reaches over evicted ones, bool of shape (groups, groups)."""
        reached = np.zeros((len(self._gone), len(self._gone)), dtype=bool)
        for v in order:  # groups are numbered in the order in which they are computed
            for u in steps[v]:
                if self._gone[u]:
                    reached[v] |= reached[u]
                    reached[v, u] = True
        return reached


class ClassCost:
    """The cost of the operation and of the classes of evicted values that are next to it."""

    def __init__(self, neighbours: Neighbours) -> None:
        self._costs = neighbours.costs
        self._beside = [set(a) | set(b) for a, b in zip(neighbours.parents, neighbours.children, strict=True)]
        self._gone: set[int] = set()
        from networkx.utils import UnionFind  # slow to load, and no other strategy needs it

        self._classes = UnionFind()
        self._place = list(range(len(self._costs)))  # a returned value gets a new place, so its class stays whole
        self._sums = dict(enumerate(self._costs.tolist()))
        self._places = len(self._costs)

    def evicted(self, v: int) -> None:
        """Join v and the classes beside it."""
        self._gone.add(v)
        roots = {self._classes[self._place[u]] for u in (v, *(self._beside[v] & self._gone))}
        total = sum(self._sums[root] for root in roots)
        self._classes.union(*(self._place[u] for u in (v, *(self._beside[v] & self._gone))))
        self._sums[self._classes[self._place[v]]] = total

    def returned(self, v: int) -> None:
        """Take the cost of v out of its class; what it connected stays connected."""
        self._gone.discard(v)
        self._sums[self._classes[self._place[v]]] -= float(self._costs[v])
        self._place[v] = self._places
        self._sums[self._places] = float(self._costs[v])
        self._places += 1

    def costs(self, groups: np.ndarray) -> np.ndarray:
        """See `Score.costs`."""
        costs = np.empty(len(groups))
        for i, v in enumerate(groups.tolist()):
            roots = {self._classes[self._place[u]] for u in self._beside[v] & self._gone}
            costs[i] = self._costs[v] + sum(self._sums[root] for root in roots)
        return costs


HEURISTICS: dict[str, type[LocalCost] | type[NeighbourhoodCost] | type[ClassCost]] = {
    "eq": ClassCost,
    "full": NeighbourhoodCost,
    "local": LocalCost,
}
