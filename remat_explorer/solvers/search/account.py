"""The exact account of memory in a schedule that changes by flips; compiled."""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.compiled_state import STALE


@counting_nothing
def replay(graph, state):
    """Compute the peaks of stale stages anew, operation by operation, each value freed after its last read."""
    for i in range(state.numbers[STALE]):
        t = state.stale[i]
        state.is_stale[t] = False
        state.peak[t] = peak_of(graph, state, t)
    state.numbers[STALE] = 0


@counting_nothing
def peak_of(graph, state, t):
    """Most bytes in memory in stage t."""
    for i in range(state.count[t]):
        k = state.running[t, i]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            state.unread[graph.inputs[j]] += 1
    held, peak = state.start[t], 0
    for i in range(state.count[t]):
        k = state.running[t, i]
        during = held + graph.needed[k]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            u = graph.inputs[j]
            state.unread[u] -= 1
            if not state.unread[u] and not state.kept[u, t + 1]:
                held -= graph.bytes[u]
                if u == graph.overwritten[k]:
                    during -= graph.credit[k]
        peak = max(peak, during)
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            if state.unread[v] or state.kept[v, t + 1]:
                held += graph.bytes[v]
    return peak


@counting_nothing
def excess(state, budget):
    """Bytes above the budget, summed over the stages."""
    total = 0
    for t in range(len(state.peak)):
        total += max(state.peak[t] - budget, 0)
    return total
