"""Optima by exhaustive search over sets of values in memory, as bits of an integer.

It shares nothing with the package's solvers: no liveness, no groups of values, no integer program. A search walks from
operation to operation, may free any value at any time, and takes over a storage where an operation can. The order of
the search is A*: cost so far, and the least cost of what has not run even once, which no run can save.

Three classes of runs, each with an optimum of its own:

* `frontier_optimum`: stage t ends with the first run of operation t, of those that are not optional, and is made of
  ``splits`` parts, in each of which operations run in ascending order; with ``splits=None`` a stage repeats operations
  as often as it likes;
* `unpartitioned_optimum`: so many rows, in each of which any operations run in ascending order.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator

from remat_explorer.graph import Graph

State = tuple[int, int, int, int]  # progress, part or row, place in it, memory


def bits(numbers: Iterable[int]) -> int:
    """A set of small numbers as an integer."""
    return sum(1 << number for number in numbers)


class Machine:
    """What one run of an operation does to the set of values in memory."""

    def __init__(self, graph: Graph, budget: int) -> None:
        self.graph, self.budget = graph, budget
        self.sizes = [value.bytes for value in graph.values]
        self.stay = bits(v for v, value in enumerate(graph.values) if value.persistent)
        # of each way: reads, writes, and new bytes, of which a second version of a persistent value is a part
        self.ways = [
            [
                (bits(way.inputs), bits(way.outputs), sum(self.sizes[v] for v in way.outputs) + way.workspace, way)
                for way in node.implementations
            ]
            for node in graph.operations
        ]
        outputs = [{v for way in node.implementations for v in way.outputs} for node in graph.operations]
        self.lasting = [bits(written) & self.stay for written in outputs]
        self.least = [min(way.cost for way in node.implementations) for node in graph.operations]

    def held(self, memory: int) -> int:
        """Bytes of a set of values and of what is resident anyway."""
        return self.graph.resident_bytes + sum(size for v, size in enumerate(self.sizes) if memory >> v & 1)

    def runs(self, k: int, memory: int, held: int, first: bool = False) -> Iterator[tuple[float, int]]:
        """Costs of runs of operation k, and what is in memory then; a first run writes all that stays."""
        for reads, writes, new, way in self.ways[k]:
            if reads & ~memory or (first and self.lasting[k] & ~writes):
                continue
            if held + new <= self.budget and not way.in_place:
                yield way.cost, memory | writes
            a = way.overwrites
            again = memory & writes & self.stay  # the first version of a persistent value stays
            if a is not None and not again and held + new - self.sizes[a] <= self.budget:
                yield way.cost, (memory & ~(1 << a)) | writes

    def frees(self, memory: int) -> Iterator[int]:
        """The sets that are left when one value is freed."""
        rest = memory & ~self.stay
        while rest:
            lowest = rest & -rest
            yield memory & ~lowest
            rest &= ~lowest


def frontier_optimum(graph: Graph, budget: int, splits: int | None = 1) -> float:
    """Cheapest run whose first runs are in order, infinity if there is none within the budget, resident bytes included.

    With ``splits``, parts of a stage, in each of which operations run in ascending order; None for no limit.
    """
    machine = Machine(graph, budget)
    own = [k for k, node in enumerate(graph.operations) if not node.optional]
    left = [sum(machine.least[k] for k in own[stage:]) for stage in range(len(own) + 1)]

    def steps(state: State) -> Iterator[tuple[float, State]]:
        stage, part, place, memory = state
        held = machine.held(memory)
        for after in machine.frees(memory):
            yield 0.0, (stage, part, place, after)
        if splits is not None and part + 1 < splits and place:
            yield 0.0, (stage, part + 1, 0, memory)
        for k in range(place, own[stage]):
            for cost, after in machine.runs(k, memory, held):
                yield cost, (stage, part, 0 if splits is None else k + 1, after)
        for cost, after in machine.runs(own[stage], memory, held, first=True):
            yield cost, (stage + 1, 0, 0, after)

    return search((0, 0, 0, 0), steps, lambda state: left[state[0]], lambda state: state[0] == len(own))


def least_peak(graph: Graph, most: int, cost_limit: float = math.inf, splits: int | None = None) -> int:
    """The smallest budget, up to ``most``, within which some run costs at most ``cost_limit``."""
    low, high = graph.resident_bytes, most
    while low < high:
        middle = (low + high) // 2
        cost = frontier_optimum(graph, middle, splits)
        low, high = (low, middle) if cost < math.inf and cost <= cost_limit * (1 + 1e-9) else (middle + 1, high)
    return low


def unpartitioned_optimum(graph: Graph, budget: int, rows: int) -> float:
    """Cheapest run of every operation in ``rows`` rows, in each of which any operations run in ascending order."""
    machine = Machine(graph, budget)
    everything = (1 << graph.n) - 1

    def steps(state: State) -> Iterator[tuple[float, State]]:
        ran, row, place, memory = state
        held = machine.held(memory)
        for after in machine.frees(memory):
            yield 0.0, (ran, row, place, after)
        if row + 1 < rows and place:
            yield 0.0, (ran, row + 1, 0, memory)
        for k in range(place, graph.n):
            for cost, after in machine.runs(k, memory, held):
                yield cost, (ran | 1 << k, row, k + 1, after)

    def left(state: State) -> float:
        return sum(cost for k, cost in enumerate(machine.least) if not state[0] >> k & 1)

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
