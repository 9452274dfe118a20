"""What the rest of a schedule costs at least, in compiled code: the estimate that steers the exact search.

Two costs that do not overlap. What is not in memory and is read again must run again, once at least. And at a moment to
come, the first run of an operation, memory may be too small for all that later first runs read: then values go that are
in memory now or come in between, and what produces them must run again, too. The cheapest choice of those is a knapsack
with fractions, filled with what costs nothing more, and then in the order of cost for each byte.
"""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.exact_sets import again_cost, contains, holds, put


@counting_nothing
def find_moments(graph, sets, budget):
    """Fill ``spare`` and ``excess`` of every moment, and for each stage the moments to come that cost the most."""
    n = len(graph.costs)
    for t in range(n):
        sets.excess[t] = graph.base[t] + graph.needed[t] - graph.credit[t] - budget
        for i in range(graph.input_start[t], graph.input_start[t + 1]):
            sets.excess[t] += graph.bytes[graph.inputs[i]]
        for v in range(graph.output_start[t]):
            if holds(sets.awaited[t + 1], v) and not holds(sets.reads[t], v) and graph.bytes[v] > 0:
                put(sets.spare[t], v)
                sets.excess[t] += graph.bytes[v]
        sets.moment_cost[t] = shortage_cost(graph, sets, sets.spare[t], 0, t)
    for t in range(n - 1, -1, -1):
        best = t if t == n - 1 or sets.moment_cost[t] > sets.moment_cost[sets.moment[t + 1]] else sets.moment[t + 1]
        sets.moment[t] = best


@counting_nothing
def shortage_cost(graph, sets, memory, t, moment):
    """What evicting costs at least until ``moment``, from stage t and this memory on, beside `again_cost`."""
    lacking = sets.excess[moment]
    if lacking <= 0:
        return 0.0
    produced = graph.output_start[t]
    for v in range(produced):
        if holds(sets.spare[moment], v) and not contains(memory, sets.writes[graph.producer[v]]):
            lacking -= graph.bytes[v]  # not in memory, or for nothing, as its producer may run again anyway
    cost = 0.0
    for v in sets.cheapest:
        if lacking <= 0:
            break
        if holds(sets.spare[moment], v) and (v >= produced or contains(memory, sets.writes[graph.producer[v]])):
            share = sets.share[v]
            cost += share if graph.bytes[v] <= lacking else share * lacking / graph.bytes[v]
            lacking -= graph.bytes[v]
    return cost


@counting_nothing
def left_to_pay(graph, sets, memory, t, enough):
    """A lower bound on the cost of recomputations from stage t on; no more is looked for once it is ``enough``."""
    again = again_cost(graph, sets, memory, t)
    if again >= enough or t == len(graph.costs):
        return again
    return again + shortage_cost(graph, sets, memory, t, sets.moment[t])
