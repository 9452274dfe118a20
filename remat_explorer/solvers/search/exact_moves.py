"""The moves of the exact search: which operation runs next, and what is evicted for it, in compiled code.

Evicting is free and can be done later, so nothing is evicted before an operation needs the room, and then no more than
it needs: all sets of values are tried from which none could be left out. Values that can never be read again go at
once. In a stage operations run in ascending order, so a run that would skip what the stage still needs is no move.
"""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.exact_bound import left_to_pay
from remat_explorer.solvers.search.exact_sets import contains, first_missing, holds, lock, put, take
from remat_explorer.solvers.search.exact_space import AFTER, HELD, LIMIT, LOCKED, MOST_WORK, WORK
from remat_explorer.solvers.search.exact_states import reach


@counting_nothing
def expand(graph, sets, states, s, budget):
    """Put all states that follow state s into the table; returns whether there was room for them."""
    t, memory = states.stage[s], states.memory[s]
    first = first_missing(graph, sets, memory, t)
    for k in range(states.position[s], first + 1):
        if (k == first or worth_running(sets, memory, t, k)) and not run(graph, sets, states, s, k, budget):
            return False
    return True


@counting_nothing
def worth_running(sets, memory, t, k):
    """Whether operation k can run with this memory and would produce what is missing and useful after stage t."""
    if not contains(memory, sets.reads[k]):
        return False
    missing = 0
    for w in range(len(memory)):
        missing |= sets.writes[k, w] & sets.useful[t + 1, w] & ~memory[w]
    return missing != 0


@counting_nothing
def run(graph, sets, states, s, k, budget):
    """Run operation k in state s, with every set of values that can be evicted for it."""
    t, memory = states.stage[s], states.memory[s]
    held, locked = sets.scratch[HELD], sets.scratch[LOCKED]
    lock(graph, sets, memory, t, k + 1, locked)
    lacking = graph.base[t] + graph.needed[k] - budget
    for w in range(len(memory)):
        held[w] = memory[w] & ~sets.writes[k, w]
        locked[w] |= sets.reads[k, w]
    for v in range(graph.output_start[t]):
        if holds(held, v):
            lacking += graph.bytes[v]
    if not evict(graph, sets, states, s, k, lacking):
        return False
    a = graph.overwritten[k]
    if lacking <= 0 or a < 0:
        return True
    saving = graph.credit[k] if k == t else sets.saving[k]
    if saving == 0:
        return True
    take(held, a)
    put(locked, a)
    return evict(graph, sets, states, s, k, lacking - saving)


@counting_nothing
def evict(graph, sets, states, s, k, lacking):
    """Run operation k with each smallest set of values evicted that gives back ``lacking`` bytes."""
    held, locked, after = sets.scratch[HELD], sets.scratch[LOCKED], sets.scratch[AFTER]
    t = states.stage[s]
    following = t + 1 if k == t else t
    for w in range(len(held)):
        after[w] = (held[w] | sets.writes[k, w]) & sets.useful[following, w]
    if lacking <= 0:
        return arrive(graph, sets, states, s, k)
    count = 0
    for v in sets.largest:
        if graph.bytes[v] > 0 and holds(held, v) and not holds(locked, v):
            sets.candidates[count] = v
            count += 1
    sets.remaining[count] = 0
    for i in range(count - 1, -1, -1):
        sets.remaining[i] = sets.remaining[i + 1] + graph.bytes[sets.candidates[i]]
    depth, i, useful = 0, 0, sets.useful[following]
    while True:
        if i < count and sets.remaining[i] >= lacking:
            v = sets.candidates[i]
            take(after, v)
            states.counts[WORK] += 1
            if graph.bytes[v] >= lacking:  # those before it are larger, so none of them could be left out
                if not arrive(graph, sets, states, s, k):
                    return False
                if holds(useful, v):
                    put(after, v)
            elif promising(graph, sets, states, s, k):
                sets.chosen[depth] = i
                depth += 1
                lacking -= graph.bytes[v]
            elif holds(useful, v):
                put(after, v)
            i += 1
        else:
            if depth == 0:
                return True
            depth -= 1
            i = sets.chosen[depth]
            v = sets.candidates[i]
            lacking += graph.bytes[v]
            if holds(useful, v):
                put(after, v)
            i += 1


@counting_nothing
def promising(graph, sets, states, s, k):
    """Whether a cheaper schedule may follow where operation k leaves no more than AFTER."""
    t = states.stage[s]
    following, paid = (t + 1, states.paid[s]) if k == t else (t, states.paid[s] + graph.costs[k])
    enough = states.limits[LIMIT] - paid
    return left_to_pay(graph, sets, sets.scratch[AFTER], following, enough) < enough


@counting_nothing
def arrive(graph, sets, states, s, k):
    """Put the state with AFTER in memory that follows a run of operation k into the table, unless it is a dead end."""
    n, t, memory = len(graph.costs), states.stage[s], sets.scratch[AFTER]
    states.counts[WORK] += 1
    if states.counts[WORK] > states.counts[MOST_WORK]:
        return False
    position, paid = k + 1, states.paid[s] + graph.costs[k]
    if k == t:
        t, position, paid = t + 1, 0, states.paid[s]
    enough = states.limits[LIMIT] - paid
    left = left_to_pay(graph, sets, memory, t, enough)
    if left >= enough:
        return True
    if t < n:
        first = first_missing(graph, sets, memory, t)
        if first < position:
            return True
        while position < first and not worth_running(sets, memory, t, position):
            position += 1
    return reach(states, t, position, memory, paid, left, s, k, n)
