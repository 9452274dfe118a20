"""Optima by exhaustive search over sets of values in memory, as bits of an integer.

It shares nothing with the package's solvers: no liveness, no groups of values, no integer program. A search walks from
operation to operation, may free any value at any time, and takes over a storage where an operation can. The order of
the search is A*: cost so far, and the cost of what has not run even once, which no run can save.

Three classes of runs, each with an optimum of its own:

* `frontier_optimum`: stage t ends with the first run of operation t and is made of ``splits`` parts, in each of which
  operations run in ascending order; with ``splits=None`` a stage repeats operations as often as it likes;
* `unpartitioned_optimum`: so many rows, in each of which any operations run in ascending order.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from remat_explorer.graph import Graph

State = tuple[int, int, int, int]  # progress, part or row, place in it, memory


@dataclass(frozen=True)
class Machine:
    """What one run of an operation does to the set of values in memory."""

    graph: Graph
    budget: int

    @cached_property
    def sizes(self) -> list[int]:
        """Bytes of each value."""
        return [value.bytes for value in self.graph.values]

    @cached_property
    def stay(self) -> int:
        """The persistent values, as bits."""
        return bits(v for v, value in enumerate(self.graph.values) if value.persistent)

    @cached_property
    def reads(self) -> list[int]:
        """What each operation reads, as bits."""
        return [bits(node.default.inputs) for node in self.graph.operations]

    @cached_property
    def writes(self) -> list[int]:
        """What each operation writes, as bits."""
        return [bits(node.default.outputs) for node in self.graph.operations]

    @cached_property
    def new_bytes(self) -> list[int]:
        """Outputs and workspace of each operation, a second version of a persistent value included."""
        return [sum(self.sizes[v] for v in node.default.outputs) + node.default.workspace for node in self.operations]

    @property
    def operations(self):
        """The graph's operations."""
        return self.graph.operations

    def held(self, memory: int) -> int:
        """Bytes of a set of values and of what is resident anyway."""
        total, v = self.graph.resident_bytes, 0
        while memory:
            if memory & 1:
                total += self.sizes[v]
            memory >>= 1
            v += 1
        return total

    def runs(self, k: int, memory: int, held: int) -> Iterator[int]:
        """The sets of values that may be in memory once operation k has run; none if it cannot."""
        if self.reads[k] & ~memory:
            return
        needed = held + self.new_bytes[k]
        if needed <= self.budget:
            yield memory | self.writes[k]
        a = self.operations[k].default.overwrites
        again = memory & self.writes[k] & self.stay  # the first version of a persistent value stays
        if a is not None and not again and needed - self.sizes[a] <= self.budget:
            yield (memory & ~(1 << a)) | self.writes[k]

    def frees(self, memory: int) -> Iterator[int]:
        """The sets that are left when one value is freed."""
        rest = memory & ~self.stay
        while rest:
            lowest = rest & -rest
            yield memory & ~lowest
            rest &= ~lowest


def bits(numbers) -> int:
    """A set of small numbers as an integer."""
    return sum(1 << number for number in numbers)


def frontier_optimum(graph: Graph, budget: int, splits: int | None = 1) -> float:
    """Cheapest run whose first runs are in order, infinity if there is none within the budget.

    Args:
        graph: a small graph, one implementation per operation.
        budget: bytes, resident bytes included.
        splits: parts of a stage, in each of which operations run in ascending order; None for no limit.
    """
    machine = Machine(graph, budget)
    costs = [node.default.cost for node in graph.operations]
    left = [sum(costs[stage:]) for stage in range(graph.n + 1)]

    def steps(state: State) -> Iterator[tuple[float, State]]:
        stage, part, place, memory = state
        held = machine.held(memory)
        for after in machine.frees(memory):
            yield 0.0, (stage, part, place, after)
        if splits is not None and part + 1 < splits and place:
            yield 0.0, (stage, part + 1, 0, memory)
        for k in range(place, stage + 1):
            for after in machine.runs(k, memory, held):
                if k == stage:
                    yield costs[k], (stage + 1, 0, 0, after)
                else:
                    yield costs[k], (stage, part, 0 if splits is None else k + 1, after)

    return search((0, 0, 0, 0), steps, lambda state: left[state[0]], lambda state: state[0] == graph.n)


def unpartitioned_optimum(graph: Graph, budget: int, rows: int) -> float:
    """Cheapest run of every operation in ``rows`` rows, in each of which any operations run in ascending order."""
    machine = Machine(graph, budget)
    costs = [node.default.cost for node in graph.operations]
    everything = (1 << graph.n) - 1

    def steps(state: State) -> Iterator[tuple[float, State]]:
        ran, row, place, memory = state
        held = machine.held(memory)
        for after in machine.frees(memory):
            yield 0.0, (ran, row, place, after)
        if row + 1 < rows and place:
            yield 0.0, (ran, row + 1, 0, memory)
        for k in range(place, graph.n):
            for after in machine.runs(k, memory, held):
                yield costs[k], (ran | 1 << k, row, k + 1, after)

    def left(state: State) -> float:
        return sum(cost for k, cost in enumerate(costs) if not state[0] >> k & 1)

    return search((0, 0, 0, 0), steps, left, lambda state: state[0] == everything)


def search(
    start: State,
    steps: Callable[[State], Iterator[tuple[float, State]]],
    left: Callable[[State], float],
    is_end: Callable[[State], bool],
) -> float:
    """Cost of the cheapest way from ``start`` to an end; ``left`` never says more than what is left to pay."""
    best = {start: 0.0}
    queue = [(left(start), start)]
    done: set[State] = set()
    while queue:
        _, state = heapq.heappop(queue)
        if state in done:
            continue
        if is_end(state):
            return best[state]
        done.add(state)
        for cost, after in steps(state):
            total = best[state] + cost
            if total < best.get(after, math.inf):
                best[after] = total
                heapq.heappush(queue, (total + left(after), after))
    return math.inf
