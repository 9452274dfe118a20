"""One walk over the stages of a graph that recomputes what is missing and evicts when memory is short; compiled.

Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021) made offline and frontier-advancing: the whole graph is
known, so the staleness of DTR's score becomes the time to the next use, and stage t ends with the first run of
operation t. The value with the smallest ``keep * cost ** a / (bytes ** b * distance ** c)`` is evicted first. A value
that an operation may overwrite, and that the stage does not read again, can be evicted by running that operation.

What evicting a value costs, given what is evicted already; compiled.

Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021) charges a value its own recomputation and that of the
evicted values around it, which would have to be recomputed with it. A union-find structure over operations keeps those
neighbourhoods (its "equivalence classes") and the cost of each. Union-find cannot split, so a neighbourhood also keeps
its members in a ring: what is left of it when some are in memory again is taken apart and joined anew.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.machine_code import counting_nothing, entry

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


NEAREST = 1e-4  # smallest distance to a next use, as a share of the whole run
DESCENDANT = math.log(0.3)  # on the score of a value that is useful only if a live descendant is evicted later


@counting_nothing
def make_room(graph, state, around, allowed, exponents, row, forward_stages, t, position, count, held, budget):
    """Evict until the operation before ``position`` fits.

    Returns the bytes that are then in memory, or -1 if nothing may be evicted any more; and how many operations the
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


DONE, STUCK, DEARER = 0, 1, 2  # how a walk ends


@counting_nothing
def clear_state(state, never):
    """Nothing is in memory before the first stage."""
    for v in range(len(state.live)):
        state.live[v] = state.locked[v] = state.for_descendant[v] = state.refused[v] = False
        state.unread[v] = 0
        state.next_read[v] = state.next_use[v] = never
    for k in range(len(state.marked)):
        state.marked[k] = state.planned[k] = False


@entry
def walk(graph, state, around, budget, exponents, keep, rows, allowed, forward_stages, most_cost, ran):
    """Walk all stages.

    ``state`` and ``around`` are space alone. ``exponents`` are of recomputation cost (a), bytes (b) and distance to the
    next use (c), float64 of shape (3,); ``keep`` is the logarithm of the factor on each group's score, float32 of shape
    (rows, g), and ``rows`` the row of each stage. As many as ``forward_stages`` recompute for later stages alone, not
    for each other. The walk ends once its recomputations must cost more than ``most_cost``.

    ``ran`` is set to what is computed, as t * n + k. A stage begins only if n more entries fit: otherwise the walk ends
    as one that is too dear. With n * n entries all stages fit. Returns how it ended, the stage and operation where it
    did, and how many entries ``ran`` has.
    """
    n, entries = len(graph.costs), 0
    clear_state(state, n + 1)
    clear(around)
    held, again_cost = 0, 0.0
    for t in range(n):
        if entries > len(ran) - n:
            return DEARER, t, t, entries
        count = missing(graph, state, allowed, t)
        if count < 0:
            ran[entries] = t * n + t
            return STUCK, t, t, entries + 1
        held -= begin_stage(graph, state, t, count)
        if count:
            bring_back(graph, around, allowed, state.running, count, state.stack)
        freed, owed = look_ahead(graph, state, around, allowed, t)
        held -= freed
        if again_cost + owed > most_cost:
            return DEARER, t, t, entries
        state.running[count] = t
        count += 1
        position = 0
        row = keep[rows[t]]
        while position < count:  # the list grows when a read is postponed
            k = state.running[position]
            position += 1
            if held > budget - graph.base[t] - graph.needed[k]:
                held, longer = make_room(
                    graph, state, around, allowed, exponents, row, forward_stages, t, position, count, held, budget
                )
                if held < 0:
                    entries -= position - 1  # those of this stage, all of which are written once more
                    for i in range(count):
                        ran[entries + i] = t * n + state.running[i]
                    return STUCK, t, k, entries + count
                count = longer
            held += compute(graph, state, around, allowed, t, k)
            ran[entries] = t * n + k
            entries += 1
            if k < t:
                again_cost += graph.costs[k]
    return DONE, n, n, entries


@counting_nothing
def missing(graph, state, allowed, t):
    """Put what must run again for stage t into ``running``; returns how many those are, -1 if one may not."""
    first, top, possible = t, 0, True
    for i in range(graph.input_start[t], graph.input_start[t + 1]):
        state.stack[top] = graph.inputs[i]
        top += 1
    while top:
        top -= 1
        v = state.stack[top]
        k = graph.producer[v]
        if state.live[v] or state.marked[k]:
            continue
        state.marked[k] = True
        first = min(first, k)
        possible = possible and allowed[k]
        for i in range(graph.input_start[k], graph.input_start[k + 1]):
            state.stack[top] = graph.inputs[i]
            top += 1
    count = 0
    for k in range(first, t):
        if state.marked[k]:
            state.marked[k] = False
            state.running[count] = k
            count += 1
    return count if possible else -1


@counting_nothing
def begin_stage(graph, state, t, count):
    """Count the reads of stage t, which runs ``running[:count]`` and t; returns the bytes that it can drop at once."""
    n, dropped = len(graph.costs), 0
    for i in range(count + 1):
        k = state.running[i] if i < count else t
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            if state.live[v]:  # it is produced again before anything can read it
                state.live[v] = False
                dropped += graph.bytes[v]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            state.unread[graph.inputs[j]] += 1
            state.locked[graph.inputs[j]] = True
    for j in range(graph.input_start[t], graph.input_start[t + 1]):
        v = graph.inputs[j]
        state.next_read[v] = n + 1
        for i in range(graph.reader_start[v], graph.reader_start[v + 1]):
            if graph.readers[i] > t:
                state.next_read[v] = graph.readers[i]
                break
    return dropped


@counting_nothing
def look_ahead(graph, state, around, allowed, t):
    """Set every value's next use, and free what has none.

    Returns the bytes that were freed, and what recomputations that are certain by now will cost.
    """
    never, freed, owed, last = len(graph.costs) + 1, 0, 0.0, -1
    for v in range(graph.output_start[t]):
        state.next_use[v] = state.next_read[v]
        state.for_descendant[v] = False
    for v in range(graph.output_start[t] - 1, -1, -1):  # what is computed from v is settled before v
        use = state.next_use[v]
        if around.evicted[v]:
            if use < never:
                k = graph.producer[v]
                if k != last:
                    owed += graph.costs[k]
                    last = k
                for i in range(graph.input_start[k], graph.input_start[k + 1]):
                    u = graph.inputs[i]
                    state.next_use[u] = min(state.next_use[u], use)
        elif state.live[v] and not state.locked[v] and use >= never:
            if allowed[graph.producer[v]]:
                use = use_by_descendants(graph, state, around, allowed, v, t)
            if use < never:
                state.next_use[v] = use
                state.for_descendant[v] = True
            else:
                state.live[v] = False
                freed += graph.bytes[v]
    return freed, owed


@counting_nothing
def use_by_descendants(graph, state, around, allowed, v, t):
    """When v would be used if a value computed from it, now in memory, were evicted."""
    nearest = len(graph.costs) + 1
    for i in range(graph.reader_start[v], graph.reader_start[v + 1]):
        k = graph.readers[i]
        if allowed[k] and k < t:
            for w in range(graph.output_start[k], graph.output_start[k + 1]):
                if state.live[w] or around.evicted[w]:
                    nearest = min(nearest, state.next_use[w])
    return nearest


@counting_nothing
def compute(graph, state, around, allowed, t, k):
    """Run operation k; returns by how many bytes memory grows."""
    never, grown = len(graph.costs) + 1, 0
    for v in range(graph.output_start[k], graph.output_start[k + 1]):
        state.live[v] = True
        around.evicted[v] = False
        grown += graph.bytes[v]
        if k == t:
            state.next_read[v] = state.next_use[v] = graph.readers[graph.reader_start[v]]
        state.locked[v] = state.unread[v] > 0
    for i in range(graph.input_start[k], graph.input_start[k + 1]):
        v = graph.inputs[i]
        state.unread[v] -= 1
        state.locked[v] = state.unread[v] > 0
        if state.live[v] and not state.locked[v] and state.next_use[v] >= never and not allowed[graph.producer[v]]:
            state.live[v] = False
            grown -= graph.bytes[v]
    for v in range(graph.output_start[k], graph.output_start[k + 1]):
        if state.next_use[v] >= never and not state.locked[v] and not allowed[graph.producer[v]]:
            state.live[v] = False
            grown -= graph.bytes[v]
    return grown
