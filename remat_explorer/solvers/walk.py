"""One walk over the stages of a graph that recomputes what is missing and evicts when memory is short.

Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021) made offline and frontier-advancing: the whole graph is
known, so the staleness of DTR's score becomes the time to the next use, and stage t ends with the first run of
operation t. The value with the smallest ``cost ** a / (bytes ** b * distance ** c)`` is evicted first. A value that an
operation may overwrite, and that the stage does not read again, can be evicted by running that operation.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.neighbourhood import EvictedNeighbourhoods

DESCENDANT = 0.3  # score of a value that is useful only if a live descendant is evicted later
NEAREST = 1e-4  # smallest distance to a next use, as a share of the whole run


@dataclass(frozen=True)
class Exponents:
    """How much recomputation cost (a), bytes (b) and distance to the next use (c) weigh in the eviction score."""

    cost: float = 1.0
    bytes: float = 1.0
    distance: float = 1.0


@dataclass(frozen=True)
class Conflict:
    """Where a walk got stuck: the stage, the operation that did not fit, and what the stage had to run."""

    stage: int
    operation: int
    running: tuple[int, ...]


class Walk:
    """Named state of one walk; `run` returns R or the conflict that stopped it.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        exponents: of the eviction score.
        keep: factor on each value's score, of shape (groups,) or (n, groups), by stage: larger is kept longer.
        any_operation: whether operations of the backward pass may run again, too.
    """

    def __init__(
        self, condensed: Condensed, budget: int, exponents: Exponents, keep: np.ndarray, any_operation: bool = False
    ) -> None:
        problem = self.condensed = condensed
        self.budget, self.exponents = budget, exponents
        self.keep = np.broadcast_to(keep, (problem.n, problem.groups))
        backward = problem.graph.is_backward
        self.forward_stages = int(backward.argmax()) if backward.any() else 0
        recomputable = np.ones(problem.n, dtype=bool) if any_operation else ~backward
        if not backward.any() or any_operation:
            self.forward_stages = 0
        self.recomputable: list[bool] = recomputable.tolist()
        self.evictable = recomputable[problem.producer]
        self.producer: list[int] = problem.producer.tolist()
        self.sizes: list[int] = problem.bytes.tolist()
        self.never = problem.n + 1
        # distances mix the number of operations and their cost, so that neither free nor dear operations dominate
        share = np.cumsum(problem.costs) / (problem.graph.total_cost or 1.0)
        self.clock = 0.5 * np.arange(problem.n + 1) / problem.n + 0.5 * np.append(0.0, share)
        self.live = np.zeros(problem.groups, dtype=bool)
        self.locked = np.zeros(problem.groups, dtype=bool)
        self.unread = np.zeros(problem.groups, dtype=np.int64)  # reads that are still to come in this stage
        self.next_read = np.full(problem.groups, self.never)  # stage of the next first run that reads the value
        self.next_use = self.next_read.copy()  # the same, for evicted values' sake included
        self.for_descendant = np.zeros(problem.groups, dtype=bool)
        self.held = 0
        self.evicted = EvictedNeighbourhoods(problem, self.recomputable)
        self.R = np.zeros((problem.n, problem.n), dtype=np.uint8)

    def run(self) -> np.ndarray | Conflict:
        """Walk all stages."""
        for t in range(self.condensed.n):
            running = self._begin_stage(t)
            if running is None:
                return Conflict(t, t, (t,))
            position = 0
            while position < len(running):  # the list grows when a read is postponed
                k = running[position]
                position += 1
                if not self._make_room(t, k, running, position):
                    return Conflict(t, k, tuple(running))
                self._compute(t, k)
        return self.R

    def _begin_stage(self, t: int) -> list[int] | None:
        """What stage t must run, in order; None if it needs an operation that may not run again."""
        missing = self._missing(self.condensed.inputs[t])
        if missing is None:
            return None
        running = [*sorted(missing), t]
        again = {v for k in missing for v in self.condensed.outputs[k]}
        for v in again:
            self._drop(v)  # it is produced again before anything can read it
        self.unread[:] = 0
        for k in running:
            self.unread[list(self.condensed.inputs[k])] += 1
        self.locked[:] = self.unread > 0
        for v in self.condensed.inputs[t]:
            self.next_read[v] = self._read_after(v, t)
        if missing:
            self.evicted.rebuild_without(again)
        self._look_ahead(t)
        return running

    def _missing(self, inputs: tuple[int, ...]) -> set[int] | None:
        """Operations that must run again to have ``inputs``, or None if one of them may not."""
        missing: set[int] = set()
        stack = [v for v in inputs if not self.live[v]]
        while stack:
            k = self.producer[stack.pop()]
            if k in missing:
                continue
            if not self.recomputable[k]:
                return None
            missing.add(k)
            stack += [u for u in self.condensed.inputs[k] if not self.live[u]]
        return missing

    def _read_after(self, v: int, t: int) -> int:
        readers = self.condensed.readers[v]
        i = bisect_right(readers, t)
        return readers[i] if i < len(readers) else self.never

    def _look_ahead(self, t: int) -> None:
        """Set every value's next use, and free what has none."""
        use = self.next_use = self.next_read.copy()
        for v in sorted(self.evicted.evicted, reverse=True):  # inputs of an evicted value are needed when it is
            for u in self.condensed.inputs[self.producer[v]]:
                use[u] = min(use[u], use[v])
        self.for_descendant[:] = False
        for v in np.flatnonzero(self.live & ~self.locked & (use >= self.never))[::-1].tolist():
            use[v] = self._use_by_descendants(v, t) if self.evictable[v] else self.never
            if use[v] < self.never:
                self.for_descendant[v] = True
            else:
                self._drop(v)

    def _use_by_descendants(self, v: int, t: int) -> int:
        """When v would be used if a value computed from it, now in memory, were evicted."""
        nearest = self.never
        for k in self.condensed.readers[v]:
            if self.recomputable[k] and k < t:
                for w in self.condensed.outputs[k]:
                    if self.live[w] or w in self.evicted.evicted or self.for_descendant[w]:
                        nearest = min(nearest, int(self.next_use[w]))
        return nearest

    def _make_room(self, t: int, k: int, running: list[int], position: int) -> bool:
        """Evict until operation k fits; False if nothing may be evicted any more."""
        problem = self.condensed
        room = self.budget - int(problem.base[t] + problem.output_bytes[k] + problem.transient[k])
        if self.held <= room:
            return True
        candidates = self.live & ~self.locked & self.evictable
        overwritable = self._overwritable(k)
        stays = 0 if overwritable is None else self.sizes[overwritable] - int(problem.credit[k])  # until k has run
        if overwritable is not None and self.next_use[overwritable] >= self.never:
            self._drop(overwritable)
            room -= stays
        elif overwritable is not None:
            candidates[overwritable] = self.evictable[overwritable]
        if t < self.forward_stages:  # recomputing within the forward pass only moves the shortage
            candidates &= self.next_read >= self.forward_stages
        waiting = dict.fromkeys(np.flatnonzero(candidates).tolist(), -1.0)
        while self.held > room:
            if waiting:
                for v, score in waiting.items():
                    if score < 0:
                        waiting[v] = self._score(v, t)
                victim = min(waiting, key=waiting.__getitem__)
                del waiting[victim]
                if victim == overwritable:
                    room -= stays
                for v in self._evict(victim):
                    if v in waiting:
                        waiting[v] = -1.0
            elif not self._postpone(t, k, running, position):
                return False
        return True

    def _overwritable(self, k: int) -> int | None:
        """The value that operation k may overwrite, if nothing that this stage runs after it reads that value."""
        v = int(self.condensed.overwritten[k])
        return v if v >= 0 and self.live[v] and self.unread[v] == 1 else None

    def _score(self, v: int, t: int) -> float:
        """h: the value with the smallest is evicted."""
        powers = self.exponents
        next_use = min(int(self.next_use[v]), self.condensed.n)
        distance = max(float(self.clock[next_use] - self.clock[t]), NEAREST)
        weight = float(self.keep[t, v]) * (DESCENDANT if self.for_descendant[v] else 1.0)
        size = max(self.sizes[v], 1)
        return weight * self.evicted.cost(v) ** powers.cost / (size**powers.bytes * distance**powers.distance)

    def _evict(self, v: int) -> set[int]:
        """Evict v; returns the values whose score may have changed."""
        self._drop(v)
        self.evicted.evict(v)
        changed, stack = self.evicted.neighbours(v), [v]
        while stack:
            w = stack.pop()
            for u in self.condensed.inputs[self.producer[w]]:
                if self.next_use[w] < self.next_use[u]:
                    self.next_use[u] = self.next_use[w]
                    changed.add(u)
                    if u in self.evicted.evicted:
                        stack.append(u)
        return changed

    def _postpone(self, t: int, k: int, running: list[int], position: int) -> bool:
        """Drop a value that this stage reads only later, if it can be produced again after k: the last resort."""
        if t < self.forward_stages:
            return False
        late = [v for v in np.flatnonzero(self.live & self.locked & self.evictable).tolist() if self.producer[v] > k]
        late = [v for v in late if self.producer[v] < t]
        for v in sorted(late, key=lambda v: self.condensed.costs[self.producer[v]] / max(self.sizes[v], 1)):
            again = self._again_after(v, k, set(running[position:]))
            if again is not None:
                running[position:] = sorted({*running[position:], *again})
                for operation in again:
                    for u in self.condensed.inputs[operation]:
                        self.unread[u] += 1
                        self.locked[u] = True
                self._drop(v)
                return True
        return False

    def _again_after(self, v: int, k: int, planned: set[int]) -> set[int] | None:
        """Operations after k that produce v again, beyond those ``planned``; None if there is no such way."""
        again: set[int] = set()
        stack = [self.producer[v]]
        while stack:
            operation = stack.pop()
            if operation in again or operation in planned:
                continue
            if any(self.live[w] and w != v for w in self.condensed.outputs[operation]):
                return None
            again.add(operation)
            for u in self.condensed.inputs[operation]:
                if u == v or (not self.live[u] and (self.producer[u] <= k or not self.evictable[u])):
                    return None
                if not self.live[u]:
                    stack.append(self.producer[u])
        return again

    def _compute(self, t: int, k: int) -> None:
        problem = self.condensed
        self.R[t, k] = 1
        for v in problem.outputs[k]:
            self.live[v] = True
            self.held += self.sizes[v]
            self.evicted.evicted.discard(v)
            if k == t:
                self.next_read[v] = self.next_use[v] = problem.readers[v][0]
            self.locked[v] = self.unread[v] > 0
        for v in problem.inputs[k]:
            self.unread[v] -= 1
            self.locked[v] = self.unread[v] > 0
        for v in (*problem.inputs[k], *problem.outputs[k]):
            if self.next_use[v] >= self.never and not self.locked[v] and not self.evictable[v]:
                self._drop(v)

    def _drop(self, v: int) -> None:
        if self.live[v]:
            self.live[v] = self.locked[v] = False
            self.held -= self.sizes[v]
