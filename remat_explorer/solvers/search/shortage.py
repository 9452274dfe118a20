"""What a walk does when an operation does not fit: evict, and postpone reads as the last resort; compiled."""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.neighbourhood import cost_logarithm, evict

NEAREST = 1e-4  # smallest distance to a next use, as a share of the whole run
DESCENDANT = math.log(0.3)  # on the score of a value that is useful only if a live descendant is evicted later


@counting_nothing
def make_room(graph, state, around, allowed, exponents, row, forward_stages, t, position, count, held, budget):
    """Evict until the operation before ``position`` fits.

    Returns:
        The bytes that are then in memory, or -1 if nothing may be evicted any more; and how many operations the
        stage runs now.
    """
    k = state.running[position - 1]
    room = budget - graph.base[t] - graph.needed[k]
    stays = 0  # bytes of what k overwrites until k has run
    over = graph.overwritten[k]
    if over >= 0 and state.live[over] and state.unread[over] == 1:
        stays = graph.bytes[over] - graph.credit[k]
        if state.next_use[over] > len(graph.costs):
            state.live[over] = state.locked[over] = False
            held -= graph.bytes[over]
            room -= stays
            over = -1
    else:
        over = -1
    waiting = 0
    for v in range(graph.output_start[t]):
        if state.live[v] and (not state.locked[v] or v == over) and allowed[graph.producer[v]]:
            if t < forward_stages and state.next_read[v] < forward_stages:
                continue  # recomputing within the forward pass only moves the shortage
            state.waiting[waiting] = v
            waiting += 1
            state.weight[v] = row[v] - exponents[1] * graph.size[v] + (DESCENDANT if state.for_descendant[v] else 0.0)
    while held > room:
        if waiting:
            v = best_victim(graph, state, around, allowed, exponents, t, waiting)
            waiting -= 1
            if v == over:
                room -= stays
            evict(graph, around, allowed, v)
            bring_use_forward(graph, state, around, v)
        else:
            v = -1 if t < forward_stages else postponed(graph, state, allowed, t, position, count)
            if v < 0:
                return -1, count
            count = run_again(graph, state, k, position, count)
        state.live[v] = state.locked[v] = False
        held -= graph.bytes[v]
    return held, count


@counting_nothing
def best_victim(graph, state, around, allowed, exponents, t, waiting):
    """Take the value with the smallest score out of ``waiting[:waiting]``."""
    best, least = 0, math.inf
    a, c, n = exponents[0], exponents[2], len(graph.costs)
    for i in range(waiting):
        v = state.waiting[i]
        score = state.weight[v] - c * distance(graph, t, min(state.next_use[v], n))
        score += a * cost_logarithm(graph, around, allowed, state.stack, v)
        if score < least:
            best, least = i, score
    v = state.waiting[best]
    state.waiting[best] = state.waiting[waiting - 1]
    return v


@counting_nothing
def distance(graph, t, u):
    """Natural logarithm of the distance from stage t to stage u."""
    return np.float32(math.log(max(graph.clock[u] - graph.clock[t], NEAREST)))


@counting_nothing
def bring_use_forward(graph, state, around, v):
    """The inputs of the evicted ``v`` are used when it is."""
    state.stack[0], top = v, 1
    while top:
        top -= 1
        w = state.stack[top]
        k = graph.producer[w]
        for i in range(graph.input_start[k], graph.input_start[k + 1]):
            u = graph.inputs[i]
            if state.next_use[w] < state.next_use[u]:
                state.next_use[u] = state.next_use[w]
                if around.evicted[u]:
                    state.stack[top] = u
                    top += 1


@counting_nothing
def postponed(graph, state, allowed, t, position, count):
    """The cheapest value, for its size, that this stage reads only later and can produce again until then, or -1.

    The operations that must run again for it, beyond those planned, are left in ``marked``.
    """
    k = state.running[position - 1]
    while True:
        best, least = -1, math.inf
        for v in range(graph.output_start[k + 1], graph.output_start[t]):
            producer = graph.producer[v]
            if state.live[v] and state.locked[v] and allowed[producer] and not state.refused[v]:
                price = graph.costs[producer] / max(graph.bytes[v], 1)
                if price < least:
                    best, least = v, price
        if best < 0 or again_after(graph, state, allowed, best, position, count):
            for v in range(graph.output_start[k + 1], graph.output_start[t]):
                state.refused[v] = False
            return best
        state.refused[best] = True


@counting_nothing
def again_after(graph, state, allowed, v, position, count):
    """Mark the operations that produce ``v`` again after the present one; False if there is no such way."""
    k = state.running[position - 1]
    for i in range(position, count):
        state.planned[state.running[i]] = True
    possible = True
    state.stack[0], top = graph.producer[v], 1
    while top and possible:
        top -= 1
        operation = state.stack[top]
        if state.marked[operation] or state.planned[operation]:
            continue
        for w in range(graph.output_start[operation], graph.output_start[operation + 1]):
            if state.live[w] and w != v:
                possible = False
        state.marked[operation] = True
        for i in range(graph.input_start[operation], graph.input_start[operation + 1]):
            u = graph.inputs[i]
            if u == v or (not state.live[u] and (graph.producer[u] <= k or not allowed[graph.producer[u]])):
                possible = False
            elif not state.live[u]:
                state.stack[top] = graph.producer[u]
                top += 1
    for i in range(position, count):
        state.planned[state.running[i]] = False
    if not possible:
        for operation in range(len(state.marked)):
            state.marked[operation] = False
    return possible


@counting_nothing
def run_again(graph, state, k, position, count):
    """Add the marked operations to those that the stage still runs; returns how many it runs now."""
    for operation in range(k + 1, len(state.marked)):
        if state.marked[operation]:
            state.marked[operation] = False
            i = count
            while i > position and state.running[i - 1] > operation:
                state.running[i] = state.running[i - 1]
                i -= 1
            state.running[i] = operation
            count += 1
            for i in range(graph.input_start[operation], graph.input_start[operation + 1]):
                state.unread[graph.inputs[i]] += 1
                state.locked[graph.inputs[i]] = True
    return count
