"""What evicting a value costs, given what is evicted already.

Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021) charges a value its own recomputation and that of the
evicted values around it, which would have to be recomputed with it. A union-find structure keeps those neighbourhoods
(its "equivalence classes") and the cost of each.
"""

from __future__ import annotations

from remat_explorer.solvers.condensed import Condensed

ALREADY_DUE, SHARED = 0.01, 0.1  # what is left of the costs when the operation must run again for another value anyway


class EvictedNeighbourhoods:
    """Connected sets of operations that would have to run again, with the cost of each set."""

    def __init__(self, condensed: Condensed, recomputable: list[bool]) -> None:
        self.condensed, self.costs = condensed, condensed.costs.tolist()
        self.producer = condensed.producer.tolist()
        self.recomputable = recomputable
        self.clear()

    def clear(self) -> None:
        """Forget everything; union-find cannot split, so it is built again after a recomputation."""
        self.evicted: set[int] = set()
        self._parent: dict[int, int] = {}
        self._cost: dict[int, float] = {}

    def rebuild_without(self, values: set[int]) -> None:
        """Keep the evicted values but ``values``, which are in memory again."""
        remaining = self.evicted - values
        self.clear()
        for v in sorted(remaining):
            self.evict(v)

    def evict(self, v: int) -> None:
        """Join the producer of ``v`` with the evicted operations around it."""
        self.evicted.add(v)
        k = self.producer[v]
        if k not in self._parent:
            self._parent[k] = k
            self._cost[k] = self.costs[k]
        root = self._find(k)
        for other in self._around(v):
            other = self._find(other)
            if other != root:
                self._parent[other] = root
                self._cost[root] += self._cost.pop(other)

    def cost(self, v: int) -> float:
        """Cost of having ``v`` again if it were evicted now."""
        k = self.producer[v]
        if k in self._parent:
            return ALREADY_DUE * self.costs[k] + SHARED * self._cost[self._find(k)]
        return self.costs[k] + sum(self._cost[root] for root in {self._find(other) for other in self._around(v)})

    def neighbours(self, v: int) -> set[int]:
        """Values whose cost may change when ``v`` is evicted."""
        problem, k = self.condensed, self.producer[v]
        near = {*problem.inputs[k], *problem.outputs[k]}
        for reader in problem.readers[v]:
            if self.recomputable[reader]:
                near.update(problem.outputs[reader])
        return near

    def _around(self, v: int) -> list[int]:
        problem = self.condensed
        before = [self.producer[u] for u in problem.inputs[self.producer[v]] if u in self.evicted]
        after = [k for k in problem.readers[v] if k in self._parent and self.recomputable[k]]
        return before + after

    def _find(self, k: int) -> int:
        parent = self._parent
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k
