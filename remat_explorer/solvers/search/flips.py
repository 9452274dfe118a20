"""Schedules as R alone, changed one recomputation at a time; compiled.

Every R with ones on its diagonal is a schedule: a value that a stage reads and does not compute is retained since it
was last computed. So S follows from R, and a schedule changes by *flips* of single entries of R. For value v of
operation k, which runs in stages a_1 < a_2 < ..., S[t,v] = 1 for a_i < t <= the last stage before a_(i+1) that reads v.

A flip changes how long the outputs and inputs of one operation live, each over consecutive stages. A stage that only
holds such a value has its peak moved by the value's bytes; the few in which the value is computed, read, or dies are
marked as stale and replayed.
"""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.compiled_state import AGAIN, LOGGED, STALE


@counting_nothing
def unload(graph, state):
    """Forget the schedule, entry by entry: most of the matrices is 0, and was never touched."""
    n = len(graph.costs)
    for t in range(n):
        for i in range(state.count[t]):
            k = state.running[t, i]
            state.runs[k, t] = 0
            state.place[t * n + k] = 0
            for j in range(graph.input_start[k], graph.input_start[k + 1]):
                v, s = graph.inputs[j], t
                state.reads[v, t] = 0
                while state.kept[v, s]:
                    state.kept[v, s] = 0
                    s -= 1
        state.count[t] = 0


@counting_nothing
def load(graph, state, again):
    """Take over recomputations as t * n + k, without those that nobody reads; every stage is stale."""
    n = len(graph.costs)
    unload(graph, state)
    state.numbers[AGAIN] = state.numbers[LOGGED] = state.numbers[STALE] = 0
    state.cost[0] = 0.0
    for t in range(n):
        state.runs[t, t] = 1
        state.running[t, 0] = t
        state.count[t] = 1
        state.start[t] = graph.base[t]
        state.is_stale[t] = False
        mark(state, t)
    for t in range(n):
        for i in range(graph.input_start[t], graph.input_start[t + 1]):
            v = graph.inputs[i]
            state.reads[v, t] += 1
            s = t
            while s > graph.producer[v] and not state.kept[v, s]:
                state.kept[v, s] = 1
                state.start[s] += graph.bytes[v]
                s -= 1
    for entry in again:
        flip(graph, state, entry // n, entry % n)
    tidy(graph, state)
    state.numbers[LOGGED] = 0


@counting_nothing
def flip(graph, state, t, k):
    """Run operation k in stage t > k, too, or no longer."""
    state.log[state.numbers[LOGGED]] = t * len(graph.costs) + k
    state.numbers[LOGGED] += 1
    mark(state, t)
    if state.runs[k, t]:
        withdraw(graph, state, t, k)
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            if state.reads[v, t] or state.kept[v, t + 1]:
                hold(graph, state, v, t)
        for i in range(graph.input_start[k], graph.input_start[k + 1]):
            u = graph.inputs[i]
            state.reads[u, t] -= 1
            if not state.reads[u, t] and not state.kept[u, t + 1] and state.kept[u, t]:
                release(graph, state, u, t)
    else:
        insert(graph, state, t, k)
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            if state.kept[v, t]:
                release(graph, state, v, t)
        for i in range(graph.input_start[k], graph.input_start[k + 1]):
            u = graph.inputs[i]
            state.reads[u, t] += 1
            if not state.kept[u, t] and not state.runs[graph.producer[u], t]:
                hold(graph, state, u, t)


@counting_nothing
def insert(graph, state, t, k):
    """Enter a recomputation into the lists."""
    entry, i, number = t * len(graph.costs) + k, state.count[t], state.numbers[AGAIN]
    while i > 0 and state.running[t, i - 1] > k:
        state.running[t, i] = state.running[t, i - 1]
        i -= 1
    state.running[t, i] = k
    state.count[t] += 1
    state.runs[k, t] = 1
    state.again[number] = entry
    state.place[entry] = number + 1
    state.numbers[AGAIN] = number + 1
    state.cost[0] += graph.costs[k]


@counting_nothing
def withdraw(graph, state, t, k):
    """Strike a recomputation from the lists."""
    entry, i, number = t * len(graph.costs) + k, 0, state.numbers[AGAIN] - 1
    while state.running[t, i] != k:
        i += 1
    state.count[t] -= 1
    while i < state.count[t]:
        state.running[t, i] = state.running[t, i + 1]
        i += 1
    state.runs[k, t] = 0
    moved = state.again[number]
    state.again[state.place[entry] - 1] = moved
    state.place[moved] = state.place[entry]
    state.place[entry] = 0
    state.numbers[AGAIN] = number
    state.cost[0] -= graph.costs[k]


@counting_nothing
def mark(state, t):
    """The peak of stage t must be computed anew."""
    if not state.is_stale[t]:
        state.is_stale[t] = True
        state.stale[state.numbers[STALE]] = t
        state.numbers[STALE] += 1


@counting_nothing
def hold(graph, state, v, t):
    """Retain group v into stage t from where it was last."""
    k, size = graph.producer[v], graph.bytes[v]
    while not state.kept[v, t]:
        state.kept[v, t] = 1
        state.start[t] += size
        state.peak[t] += size
        t -= 1
        if state.runs[k, t]:
            break
    mark(state, t)


@counting_nothing
def release(graph, state, v, t):
    """Retain group v, which stage t does not need from before, no longer than it is read."""
    k, size = graph.producer[v], graph.bytes[v]
    while state.kept[v, t]:
        state.kept[v, t] = 0
        state.start[t] -= size
        state.peak[t] -= size
        t -= 1
        if state.reads[v, t] or state.runs[k, t]:
            break
    mark(state, t)


@counting_nothing
def useless(graph, state, t, k):
    """Whether k runs again in stage t though nobody reads what it computes there."""
    if t == k or not state.runs[k, t]:
        return False
    for v in range(graph.output_start[k], graph.output_start[k + 1]):
        if state.reads[v, t] or state.kept[v, t + 1]:
            return False
    return True


@counting_nothing
def tidy(graph, state):
    """Drop the recomputations that nobody reads since the flips in the log, and those that only they needed."""
    n, done = len(graph.costs), 0
    while done < state.numbers[LOGGED]:
        t, k = state.log[done] // n, state.log[done] % n
        done += 1
        if useless(graph, state, t, k):
            flip(graph, state, t, k)
            continue
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            drop_source(graph, state, t - 1, v)
        for i in range(graph.input_start[k], graph.input_start[k + 1]):
            drop_source(graph, state, t, graph.inputs[i])


@counting_nothing
def drop_source(graph, state, t, v):
    """Drop the last recomputation of group v up to stage t if nobody reads it."""
    k = graph.producer[v]
    while t > k and not state.kept[v, t] and not state.runs[k, t]:
        t -= 1
    if t > k and useless(graph, state, t, k):
        flip(graph, state, t, k)


@counting_nothing
def undo(graph, state):
    """Take back every flip in the log; peaks of stages that were replayed since are left to the caller."""
    n = len(graph.costs)
    for i in range(state.numbers[LOGGED] - 1, -1, -1):
        flip(graph, state, state.log[i] // n, state.log[i] % n)
    state.numbers[LOGGED] = 0
    for i in range(state.numbers[STALE]):
        state.is_stale[state.stale[i]] = False
    state.numbers[STALE] = 0
