"""Dynamic Tensor Rematerialization on a static graph: operations run in order, and memory is found as it goes.

Kirisame et al., Dynamic Tensor Rematerialization (ICLR 2021), section 2: where an operation does not
fit, the value in memory with the least score is evicted; where an input was evicted, what computes it runs again
first, and so on. The simulation knows what the paper's runtime knows: not what comes, but when the program has let go
of a value. Such a value is evicted at once ("eager eviction"); where it must come back for the sake of another, it
goes again as soon as that one is computed. Persistent values and resident bytes are never evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.dynamic.scores import HEURISTICS, Neighbours

THRASHING = 20.0  # a run is given up once it costs, or counts, so many times what computing everything once does


@dataclass(frozen=True, eq=False)
class Trace:
    """What was run, stage by stage; stage t ends with the first run of operation t.

    Attributes:
        status: "done", "out of memory", "thrashing", or "stopped" where the time was up.
        runs: for each stage its operations in the order in which they ran.
        held: which groups are in memory when each stage begins, bool of shape (n, groups).
        evictions: how often memory was short and a value was evicted for it.
    """

    status: Literal["done", "out of memory", "thrashing", "stopped"]
    runs: tuple[tuple[int, ...], ...]
    held: np.ndarray
    evictions: int

    @property
    def is_ascending(self) -> bool:
        """Whether each stage runs its operations in ascending order, each once, so that rows of R can say it."""
        return all(a < b for row in self.runs for a, b in pairwise(row))


def simulate(
    condensed: Condensed, budget: int, heuristic: str = "eq", over: Callable[[], bool] = lambda: False
) -> Trace:
    """Run all operations once, and again where that is needed, within ``budget``.

    Args:
        condensed: n operations and their groups of values; a group is evicted as one.
        budget: bytes, resident bytes included.
        heuristic: a key of `HEURISTICS`.
        over: asked between operations; once True the run ends.

    >>> from remat_explorer.instances import linear
    >>> trace = simulate(Condensed.of(linear(3)), 4)
    >>> trace.status, trace.runs[5:]
    ('done', ((5,), (0, 6)))
    """
    return _Simulation(condensed, budget, heuristic).run(over)


class _Simulation:
    """Memory at one moment of a run."""

    def __init__(self, condensed: Condensed, budget: int, heuristic: str) -> None:
        self.condensed, self.budget = condensed, budget
        self.score = HEURISTICS[heuristic](Neighbours(condensed))
        groups = condensed.groups
        self.resident = np.zeros(groups, dtype=bool)
        self.computed = np.zeros(groups, dtype=bool)  # at least once
        self.dropped = np.zeros(groups, dtype=bool)  # by the program: no operation will run for the first time on it
        self.locks = np.zeros(groups, dtype=np.int64)  # operations that wait to read it
        self.accessed = np.zeros(groups)
        self.clock, self.held, self.count, self.evictions = 0.0, 0, 0, 0

    def run(self, over: Callable[[], bool]) -> Trace:
        """All stages."""
        condensed, n = self.condensed, self.condensed.n
        runs: list[tuple[int, ...]] = []
        held = np.zeros((n, condensed.groups), dtype=bool)
        status = "done"
        for t in range(n):
            if over():
                status = "stopped"
                break
            held[t] = self.resident
            row: list[int] = []
            status = self._stage(t, row)
            runs.append(tuple(row))
            if status != "done":
                break
        return Trace(status, tuple(runs), held, self.evictions)

    def _stage(self, t: int, row: list[int]) -> Literal["done", "out of memory", "thrashing"]:
        """Run t for the first time, and before it what it misses; the paper's recursion, on a stack of its own."""
        condensed, most_cost = self.condensed, THRASHING * self.condensed.graph.total_cost
        waiting = [(t, 0)]  # operations, each with the number of inputs that are there and locked
        while waiting:
            k, ready = waiting.pop()
            if ready < len(condensed.inputs[k]):
                v = condensed.inputs[k][ready]
                if self.resident[v]:
                    self.locks[v] += 1
                    waiting.append((k, ready + 1))
                    self._let_go(condensed.outputs[condensed.producer[v]])
                else:
                    waiting += [(k, ready), (int(condensed.producer[v]), 0)]
                continue
            if self.count > THRASHING * condensed.n or self.clock > most_cost:
                return "thrashing"
            if not self._make_room(t, k):
                return "out of memory"
            self._compute(t, k)
            row.append(k)
        return "done"

    def _make_room(self, t: int, k: int) -> bool:
        """Evict until k fits; False if nothing may be evicted any more."""
        condensed = self.condensed
        room = self.budget - int(condensed.base[t] + condensed.output_bytes[k] + condensed.transient[k])
        over = int(condensed.overwritten[k])
        if over >= 0 and self.locks[over] == 1 and (self.dropped[over] or condensed.readers[over][-1] == t == k):
            room += int(condensed.credit[k])  # its storage passes to the output
        while self.held > room:
            candidates = np.flatnonzero(self.resident & (self.locks == 0) & (condensed.bytes > 0))
            if not len(candidates):
                return False
            costs = self.score.costs(candidates)
            weight = condensed.bytes[candidates] * np.maximum(self.clock - self.accessed[candidates], 1e-12)
            self._evict(int(candidates[np.argmin(costs / weight)]))
            self.evictions += 1
        return True

    def _compute(self, t: int, k: int) -> None:
        condensed = self.condensed
        self.count += 1
        self.clock += float(condensed.costs[k])
        for v in condensed.outputs[k]:
            if not self.resident[v]:
                self.resident[v] = True
                self.held += int(condensed.bytes[v])
                if self.computed[v]:
                    self.score.returned(v)
                self.computed[v] = True
            self.accessed[v] = self.clock
        for v in condensed.inputs[k]:
            self.locks[v] -= 1
            self.accessed[v] = self.clock
            if k == t and condensed.readers[v][-1] == t:
                self.dropped[v] = True
        self._let_go(condensed.inputs[k])

    def _let_go(self, groups: tuple[int, ...]) -> None:
        """Eager eviction of those that the program has let go of and nothing waits for."""
        for v in groups:
            if self.resident[v] and self.dropped[v] and not self.locks[v]:
                self._evict(v)

    def _evict(self, v: int) -> None:
        self.resident[v] = False
        self.held -= int(self.condensed.bytes[v])
        self.score.evicted(v)
