"""A lower bound on the peak of every schedule: what must be in memory before an operation, and before that.

Operation t needs a set X of values at once. Of those, one was computed last, by some operation p; while p ran, the rest
of X was in memory beside p's inputs, outputs and transient bytes. And before p, the rest of X with p's inputs was in
memory together. So with need(X) = 0 for the empty set,

    need(X) >= min over p that compute something of X of
        max(bytes while p runs, need((X without outputs of p) with inputs of p)).

This is a shortest path over sets of values whose length is the largest step: states are expanded smallest first, and
the smallest length that is still open is a bound at any time. Rules of stages are not used, so the bound holds for
every order of computations; it is at least what the largest single operation needs, which takes one step back.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass

from remat_explorer.solvers.condensed import Condensed

State = frozenset[int]
EXPANSIONS = 100  # states looked at for one operation, at most; a hundred times as many gave no higher bound


@dataclass(frozen=True)
class WorkingSet:
    """The point that makes the bound.

    Attributes:
        bytes: no schedule has a lower peak; resident bytes included.
        stage: the operation whose inputs must be in memory at once.
        operation: the one that needs these bytes: ``stage`` itself, or one that runs to prepare its inputs.
        during: the earliest stage in which it can run at this point.
        groups: what is in memory while it runs, its outputs included.
        in_place: whether the value that it may overwrite dies there, and is counted once with the output.
    """

    bytes: int
    stage: int
    operation: int
    during: int
    groups: tuple[int, ...]
    in_place: bool


def least_working_set(condensed: Condensed, seconds: float = 1.0) -> WorkingSet:
    """The bound over all operations.

    Args:
        condensed: n operations and their groups of values.
        seconds: wall time; operations that are not reached count for themselves alone.

    >>> from remat_explorer.instances import linear
    >>> found = least_working_set(Condensed.of(linear(8)))
    >>> found.bytes, found.stage
    (3, 9)
    """
    return _WorkingSetSearch(condensed, time.monotonic() + seconds).run()


class _WorkingSetSearch:
    """The bound so far, and the sets of values that are known to be attainable within it."""

    def __init__(self, condensed: Condensed, end: float) -> None:
        self.condensed, self.end = condensed, end
        self.sizes: list[int] = condensed.bytes.tolist()
        self.inputs = [frozenset(read) for read in condensed.inputs]
        self.outputs = [frozenset(written) for written in condensed.outputs]
        self.producer: list[int] = condensed.producer.tolist()
        self.attained: set[State] = {frozenset()}
        self.together: list[State] = [frozenset()] * condensed.n  # attained at once around an operation that is done
        own = condensed.operation_bytes
        k = int(own.argmax())
        self.best = WorkingSet(int(own[k]), k, k, k, tuple(sorted(self.inputs[k] | self.outputs[k])), True)

    def run(self) -> WorkingSet:
        for t in range(self.condensed.n):
            if time.monotonic() > self.end:
                break
            self._raise_for(t)
            overwritten = int(self.condensed.overwritten[t])
            self.together[t] = (self.inputs[t] | self.outputs[t]) - {overwritten}
        return self.best

    def _raise_for(self, t: int) -> None:
        """Raise the bound to what the inputs of t need, as far as the number of expansions goes."""
        start = self.inputs[t]
        came_from: dict[State, State | None] = {start: None}
        least = {start: 0}
        waiting: list[tuple[int, int, int, State, int]] = [(0, 0, 0, start, t)]
        count = 0
        while waiting and count < EXPANSIONS:
            needed, _, _, state, p = heapq.heappop(waiting)
            if needed > least[state]:
                continue
            if needed > self.best.bytes:
                after = came_from[state] or frozenset()
                alive = tuple(sorted(state | self.outputs[p]))
                self.best = WorkingSet(needed, t, p, self._during(p, state), alive, self._in_place(p, after))
            if self._is_attained(state):
                at: State | None = state
                while at is not None:
                    self.attained.add(at)
                    at = came_from[at]
                return
            count += 1
            for p in {self.producer[v] for v in state}:
                before = (state - self.outputs[p]) | self.inputs[p]
                step = max(needed, self.best.bytes, self._bytes_while(p, before, state))
                if before not in least or step < least[before]:
                    least[before], came_from[before] = step, state
                    heapq.heappush(waiting, (step, self._size(before), -count, before, p))

    def _bytes_while(self, p: int, before: State, after: State) -> int:
        """Bytes in memory while p runs between two states."""
        condensed = self.condensed
        own = condensed.base[self._during(p, before)] + condensed.output_bytes[p] + condensed.transient[p]
        return self._size(before) + int(own) - (int(condensed.credit[p]) if self._in_place(p, after) else 0)

    def _during(self, p: int, before: State) -> int:
        """The earliest stage in which p can run: after those that computed what is held, if it comes before them."""
        later = [self.producer[v] + 1 for v in before if self.producer[v] > p]
        return min(max([p, *later]), self.condensed.n - 1)

    def _in_place(self, p: int, after: State) -> bool:
        overwritten = int(self.condensed.overwritten[p])
        return overwritten >= 0 and overwritten not in after

    def _size(self, state: State) -> int:
        return sum(self.sizes[v] for v in state)

    def _is_attained(self, state: State) -> bool:
        if state in self.attained:
            return True
        v = next(iter(state))
        around = (self.producer[v], *self.condensed.readers[v])
        return any(state <= self.together[k] for k in around)
