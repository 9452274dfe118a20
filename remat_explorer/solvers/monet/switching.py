"""Single runs switched to cheaper implementations: a rerun need not be what the first run was.

A search on one choice of implementations runs each operation the same way every time. But statistics of a batch norm
that were saved make its rerun cheap, and a pooling whose indices are in memory need not write them again. So in a
schedule that is there, each run is switched to the cheapest implementation that writes what is read of this run, and
reads what is in memory then anyway, or is small enough to stay there until then. What is no longer read goes earlier.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.monet.codes import Codes

SMALL = 1e-3  # of the budget: smaller values may stay in memory for a cheaper rerun


def switch_runs(schedule: Schedule, budget: int, codes: Codes | None = None) -> Schedule:
    """The schedule, or a cheaper one within the budget with the same runs, or fewer, in other implementations.

    Args:
        schedule: frontier-advancing, compact, its plan's peak within the budget.
        budget: bytes, resident bytes included.
        codes: for each operation the numbers of the implementations that may be chosen; all if None.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.checkpoint_all import checkpoint_all
    >>> keep = checkpoint_all(linear(4))
    >>> switch_runs(keep, budget=6) is keep
    True
    """
    ways = [range(1, len(node.implementations) + 1) for node in schedule.graph.operations]
    for small in (SMALL * budget, 0.0):
        switches = _switches(schedule, ways if codes is None else codes, small)
        switched = _switched(schedule, switches)
        if switched is not None and switched.violation() is None and Plan.of(switched).peak <= budget:
            return switched
    return schedule


def _switches(schedule: Schedule, codes: Codes, small: float) -> list[tuple[int, int, int]]:
    """Stage, operation and implementation of runs that may be cheaper."""
    graph, R, S = schedule.graph, schedule.R, schedule.S
    switches: list[tuple[int, int, int]] = []
    written: set[int] = set()  # small values that were in memory before
    ran = np.zeros(graph.n, dtype=bool)
    for t in range(schedule.stages):
        runs = [(int(k), int(R[t, k])) for k in np.flatnonzero(R[t])]
        kept = S[t + 1] if t + 1 < schedule.stages else np.zeros(len(graph.values), dtype=bool)
        last = {v: k for k, code in runs for v in graph.inputs(k, code)}
        there = set(np.flatnonzero(S[t]).tolist())
        for k, code in runs:
            there = {v for v in there if kept[v] or graph.persistent[v] or last.get(v, -1) >= k}
            if len(codes[k]) > 1:
                now = graph.operations[k].implementations[code - 1]
                read = {v for v in now.outputs if (kept[v] or last.get(v, -1) > k) and v not in written}
                if not ran[k] and not graph.operations[k].optional:
                    read |= _persistent(graph, k)
                living = {v for v in there if kept[v] or graph.persistent[v] or last.get(v, -1) > k}
                better = _cheapest(graph, k, codes[k], there | written, read, living)
                saved = now.cost - graph.operations[k].implementations[better - 1].cost if better else 0.0
                if better is not None and saved > 0:
                    switches.append((t, k, better))
            ran[k] = True
            there |= set(graph.outputs(k, code))
            written |= {v for v in graph.outputs(k, code) if graph.values[v].bytes < small}
    return switches


def _persistent(graph: Graph, k: int) -> set[int]:
    return {v for way in graph.operations[k].implementations for v in way.outputs if graph.persistent[v]}


def _cheapest(
    graph: Graph, k: int, codes: Collection[int], there: set[int], read: set[int], living: set[int]
) -> int | None:
    """The cheapest of the implementations that read only what is there and write all that is read.

    Those that may run in place only overwrite nothing that lives on.
    """
    able = [
        code
        for code, way in enumerate(graph.operations[k].implementations, 1)
        if code in codes and there.issuperset(way.inputs) and read.issubset(way.outputs)
        if not way.in_place or way.overwrites not in living
    ]
    return min(able, key=lambda code: graph.operations[k].implementations[code - 1].cost, default=None)


def _switched(schedule: Schedule, switches: list[tuple[int, int, int]]) -> Schedule | None:
    if not switches:
        return None
    R = schedule.R.copy()
    for t, k, code in switches:
        if not R[t, k]:
            return None
        R[t, k] = code
    switched = Schedule(schedule.graph, R, np.zeros_like(schedule.S)).compact()
    return switched if switched.cost < schedule.cost else None
