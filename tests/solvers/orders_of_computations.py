"""The cheapest order of computations within a budget, by search over sets of values in memory; for small graphs.

It knows nothing of stages, schedules and plans: an operation runs when its inputs are in memory, any value may be
dropped at any time, and operations run for the first time in the graph's order.
"""

from __future__ import annotations

import heapq
import math

from remat_explorer.graph import Graph

State = tuple[int, frozenset[int]]  # operations that ran, and the values in memory that may be dropped


def least_cost(graph: Graph, budget: int) -> float:
    """Cost of the cheapest order whose peak is within ``budget``; infinity if there is none."""
    size = [value.bytes for value in graph.values]
    permanent = [value.persistent for value in graph.values]
    start: State = (0, frozenset())
    distance: dict[State, float] = {start: 0.0}
    waiting: list[tuple[float, int, State]] = [(0.0, 0, start)]
    while waiting:
        cost, _, state = heapq.heappop(waiting)
        ran, held = state
        if cost > distance[state]:
            continue
        if ran == graph.n:
            return cost
        there = graph.resident_bytes + sum(
            size[v] for v in range(len(size)) if permanent[v] and graph.producer[v] < ran
        )
        steps: list[tuple[float, State]] = [(0.0, (ran, held - {v})) for v in held]
        for k in range(ran + 1):
            way = graph.operations[k].default
            outputs = frozenset(v for v in way.outputs if not permanent[v])
            if outputs & held or any(v not in held and not permanent[v] for v in way.inputs):
                continue
            needed = there + sum(size[v] for v in (*held, *way.outputs)) + way.workspace
            for dying in {None, way.overwrites}:
                after = held | outputs if dying is None else (held - {dying}) | outputs
                if needed - (0 if dying is None else size[dying]) <= budget:
                    steps.append((way.cost, (max(ran, k + 1), after)))
        for step, following in steps:
            if cost + step < distance.get(following, math.inf) - 1e-12:
                distance[following] = cost + step
                heapq.heappush(waiting, (cost + step, len(distance), following))
    return math.inf


def least_peak(graph: Graph, most: int, cost_limit: float = math.inf) -> int:
    """The smallest budget, up to ``most``, within which some order costs at most ``cost_limit``."""
    low, high = graph.resident_bytes, most
    while low < high:
        middle = (low + high) // 2
        cost = least_cost(graph, middle)
        if cost < math.inf and cost <= cost_limit + 1e-9:
            high = middle
        else:
            low = middle + 1
    return low
