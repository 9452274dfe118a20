"""One walk over the stages of a graph that recomputes what is missing and evicts when memory is short; compiled.

Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021) made offline and frontier-advancing: the whole graph is
known, so the staleness of DTR's score becomes the time to the next use, and stage t ends with the first run of
operation t. The value with the smallest ``keep * cost ** a / (bytes ** b * distance ** c)`` is evicted first. A value
that an operation may overwrite, and that the stage does not read again, can be evicted by running that operation.
"""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.solvers.search.neighbourhood import bring_back, clear
from remat_explorer.solvers.search.shortage import make_room

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

    Args:
        graph: a `FlatGraph`.
        state: a `WalkState`, and
        around: `Neighbourhoods`, both space alone.
        budget: bytes, resident bytes included.
        exponents: of recomputation cost (a), bytes (b) and distance to the next use (c), float64 of shape (3,).
        keep: logarithm of the factor on each group's score, float32 of shape (rows, g), and
        rows: the row of each stage, int64 of shape (n,).
        allowed: which operations may run again, bool of shape (n,).
        forward_stages: how many stages recompute for later stages alone, not for each other.
        most_cost: the walk ends once its recomputations must cost more than this.
        ran: space for int32; set to what is computed, as t * n + k. A stage begins only if n more entries fit:
            otherwise the walk ends as one that is too dear. With n * n entries all stages fit.

    Returns:
        How it ended, the stage and operation where it did, and how many entries ``ran`` has.
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

    Returns:
        The bytes that were freed, and what recomputations that are certain by now will cost.
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
