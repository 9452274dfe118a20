"""What evicting a value costs, given what is evicted already; compiled.

Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021) charges a value its own recomputation and that of the
evicted values around it, which would have to be recomputed with it. A union-find structure over operations keeps those
neighbourhoods (its "equivalence classes") and the cost of each. Union-find cannot split, so a neighbourhood also keeps
its members in a ring: what is left of it when some are in memory again is taken apart and joined anew.
"""

from __future__ import annotations

import math

from remat_explorer.machine_code import counting_nothing

ALREADY_DUE, SHARED = 0.01, 0.1  # what is left of the costs when the operation must run again for another value anyway
LEAST_COST = 1e-30  # instead of 0, whose logarithm is not finite


@counting_nothing
def clear(around):
    """Nothing is evicted."""
    for k in range(len(around.parent)):
        around.parent[k] = -1
    for v in range(len(around.evicted)):
        around.evicted[v] = False
        around.stale[v] = True


@counting_nothing
def root_of(parent, k):
    """Root of operation k, with the path to it halved."""
    while parent[k] != k:
        parent[k] = parent[parent[k]]
        k = parent[k]
    return k


@counting_nothing
def join(around, k, other):
    """Make one neighbourhood of those of two operations."""
    a, b = root_of(around.parent, k), root_of(around.parent, other)
    if a != b:
        around.parent[b] = a
        around.cost[a] += around.cost[b]
        around.ring[a], around.ring[b] = around.ring[b], around.ring[a]


@counting_nothing
def evict(graph, around, allowed, v):
    """Join the producer of ``v`` with the evicted operations around it."""
    k = graph.producer[v]
    around.evicted[v] = True
    if around.parent[k] < 0:
        around.parent[k] = around.ring[k] = k
        around.cost[k] = graph.costs[k]
    for i in range(graph.input_start[k], graph.input_start[k + 1]):
        u = graph.inputs[i]
        around.stale[u] = True
        if around.evicted[u]:
            join(around, k, graph.producer[u])
    for i in range(graph.reader_start[v], graph.reader_start[v + 1]):
        reader = graph.readers[i]
        if allowed[reader]:
            for w in range(graph.output_start[reader], graph.output_start[reader + 1]):
                around.stale[w] = True
            if around.parent[reader] >= 0:
                join(around, k, reader)
    for w in range(graph.output_start[k], graph.output_start[k + 1]):
        around.stale[w] = True


@counting_nothing
def bring_back(graph, around, allowed, operations, count, scratch):
    """The outputs of ``operations[:count]`` are in memory again: take their neighbourhoods apart."""
    members = 0
    for i in range(count):
        k = operations[i]
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            around.evicted[v] = False
            around.stale[v] = True
        first = k
        while around.parent[k] >= 0:  # the ring ends where a member was taken out already
            scratch[members] = k
            members += 1
            around.parent[k] = -1
            k = around.ring[k]
        around.parent[first] = -1
    for i in range(members):
        k = scratch[i]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            around.stale[graph.inputs[j]] = True
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            around.stale[v] = True
            for j in range(graph.reader_start[v], graph.reader_start[v + 1]):
                reader = graph.readers[j]
                for w in range(graph.output_start[reader], graph.output_start[reader + 1]):
                    around.stale[w] = True
            if around.evicted[v]:
                evict(graph, around, allowed, v)


@counting_nothing
def cost_logarithm(graph, around, allowed, roots, v):
    """Logarithm of the cost of having ``v`` again if it were evicted now; ``roots`` is scratch space."""
    if not around.stale[v]:
        return around.logarithm[v]
    k = graph.producer[v]
    if around.parent[k] >= 0:
        total = ALREADY_DUE * graph.costs[k] + SHARED * around.cost[root_of(around.parent, k)]
    else:
        total, count = graph.costs[k], 0
        first_input, first_reader = graph.input_start[k], graph.reader_start[v]
        for i in range(graph.input_start[k + 1] - first_input + graph.reader_start[v + 1] - first_reader):
            j = first_reader + i - (graph.input_start[k + 1] - first_input)
            if j < first_reader:
                u = graph.inputs[first_input + i]
                other = graph.producer[u] if around.evicted[u] else -1
            else:
                other = graph.readers[j]
                if not allowed[other] or around.parent[other] < 0:
                    other = -1
            if other >= 0:
                root = root_of(around.parent, other)
                new = True
                for q in range(count):
                    if roots[q] == root:
                        new = False
                        break
                if new:
                    roots[count] = root
                    count += 1
                    total += around.cost[root]
    around.logarithm[v] = math.log(total + LEAST_COST)
    around.stale[v] = False
    return around.logarithm[v]
