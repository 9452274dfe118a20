"""The exact search itself: states in the order of the least that they can cost; compiled.

A* (Hart, Nilsson and Raphael, 1968): no state is expanded before one from which a cheaper schedule might follow.

*Order.* A state's key is what its recomputations cost so far and at least from there on, in small units, and with equal
costs the later stage comes first. So the first state that is taken out has the least cost, rounded down, that any
schedule can have.

*Estimate* of what the rest of a schedule costs at least: two costs that do not overlap. What is not in memory and is
read again must run again, once at least. And at a moment to come, the first run of an operation, memory may be too
small for all that later first runs read: then values go that are in memory now or come in between, and what produces
them must run again, too. The cheapest choice of those is a knapsack with fractions, filled with what costs nothing
more, and then in the order of cost for each byte.

*Moves*: which operation runs next, and what is evicted for it. Evicting is free and can be done later, so nothing is
evicted before an operation needs the room, and then no more than it needs: all sets of values are tried from which none
could be left out. Values that can never be read again go at once. In a stage operations run in ascending order, so a
run that would skip what the stage still needs is no move.
"""

from __future__ import annotations

import math

from numba.cpython.unsafe.numbers import leading_zeros

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.solvers.search.compiled_state import (
    AFTER,
    DEPTH,
    GOAL,
    HELD,
    LIMIT,
    LOCKED,
    MOST_WORK,
    PAUSE,
    STATES,
    UNIT,
    WAITING,
    WANTED,
    WORK,
)


@counting_nothing
def reach(states, t, position, memory, paid, left, parent, operation, n):
    """Put a state that costs ``paid`` and ``left`` at least into table and heap, unless a known one is as good.

    Returns whether there was room for it.
    """
    total = paid + left
    if total >= states.limits[LIMIT]:
        return True
    mask = len(states.table) - 1
    mixed = t * 1000003 + position
    for w in range(len(memory)):
        mixed = (mixed ^ memory[w]) * 0x2545F4914F6CDD1D
        mixed ^= (mixed >> 29) & 0x7FFFFFFFF
    slot = mixed & mask
    while states.table[slot]:
        s = states.table[slot] - 1
        if states.stage[s] == t and states.position[s] == position and same(states.memory[s], memory):
            if states.paid[s] <= paid:
                return True
            break
        slot = (slot + 1) & mask
    if states.counts[WAITING] == len(states.keys):
        return False
    if states.table[slot]:
        s = states.table[slot] - 1
    else:
        s = states.counts[STATES]
        if s == len(states.stage):
            return False
        states.counts[STATES] += 1
        states.table[slot] = s + 1
        states.stage[s] = t
        states.position[s] = position
        for w in range(len(memory)):
            states.memory[s, w] = memory[w]
    states.paid[s] = paid
    states.parent[s] = parent
    states.operation[s] = operation
    states.expanded[s] = False
    key = (int(total / states.limits[UNIT]) << DEPTH) - (t * n + position)
    wait(states, key, s)
    if t == n:
        states.counts[GOAL] = s
        states.limits[LIMIT] = total
    return True


@counting_nothing
def same(one, other):
    """Whether two sets are the same."""
    different = 0
    for w in range(len(one)):
        different |= one[w] ^ other[w]
    return different == 0


@counting_nothing
def wait(states, key, s):
    """Put state s into the heap."""
    place = states.counts[WAITING]
    states.counts[WAITING] += 1
    while place:
        above = (place - 1) >> 1
        if states.keys[above] <= key:
            break
        states.keys[place] = states.keys[above]
        states.waiting[place] = states.waiting[above]
        place = above
    states.keys[place] = key
    states.waiting[place] = s


@counting_nothing
def next_state(states):
    """Take the state with the smallest key out of the heap."""
    s = states.waiting[0]
    states.counts[WAITING] -= 1
    count = states.counts[WAITING]
    key, moved = states.keys[count], states.waiting[count]
    place = 0
    while 2 * place + 1 < count:
        below = 2 * place + 1
        if below + 1 < count and states.keys[below + 1] < states.keys[below]:
            below += 1
        if states.keys[below] >= key:
            break
        states.keys[place] = states.keys[below]
        states.waiting[place] = states.waiting[below]
        place = below
    states.keys[place] = key
    states.waiting[place] = moved
    return s


@counting_nothing
def fill(graph, sets, limit):
    """Fill the sets of a `FlatGraph`.

    A value is useful for a first run to come, or for a run again whose output is: where all such runs on the way to a
    first run cost ``limit`` together, nobody needs it.
    """
    n, groups = len(graph.costs), len(graph.bytes)
    for v in range(groups):
        put(sets.writes[graph.producer[v]], v)
        for i in range(graph.reader_start[v], graph.reader_start[v + 1]):
            put(sets.reads[graph.readers[i]], v)
    for t in range(n + 1):
        for v in range(groups - 1, -1, -1):  # readers come after producers, so their outputs are done
            least = math.inf
            for i in range(graph.reader_start[v], graph.reader_start[v + 1]):
                j = graph.readers[i]
                if j >= t:
                    least = 0.0
                for w in range(graph.output_start[j], graph.output_start[j + 1]):
                    least = min(least, graph.costs[j] + sets.detour[w])
            sets.detour[v] = least
            if graph.producer[v] < t and least < limit:
                put(sets.useful[t], v)
                if least == 0.0 and graph.readers[graph.reader_start[v + 1] - 1] >= t:
                    put(sets.awaited[t], v)


@counting_nothing
def put(row, v):
    """Add group v to a set."""
    row[v >> 6] |= 1 << (v & 63)


@counting_nothing
def take(row, v):
    """Remove group v from a set."""
    row[v >> 6] &= ~(1 << (v & 63))


@counting_nothing
def holds(row, v):
    """Whether group v is in a set."""
    return (row[v >> 6] >> (v & 63)) & 1 == 1


@counting_nothing
def contains(row, part):
    """Whether every group of ``part`` is in a set."""
    missing = 0
    for w in range(len(row)):
        missing |= part[w] & ~row[w]
    return missing == 0


@counting_nothing
def highest(word):
    """The place of the highest bit of a word that is not 0."""
    return 63 - leading_zeros(word)  # pyright: ignore[reportCallIssue]


@counting_nothing
def again_cost(graph, sets, memory, t):
    """What must run again from stage t on with this memory, each operation once: no more than what is left to pay.

    Read by a first run, or by what must run again, and not in memory.
    """
    wanted = sets.scratch[WANTED]
    for w in range(len(memory)):
        wanted[w] = sets.awaited[t, w] & ~memory[w]
    cost = 0.0
    for w in range(len(memory) - 1, -1, -1):
        while wanted[w]:
            k = graph.producer[64 * w + highest(wanted[w])]
            cost += graph.costs[k]
            for x in range(w + 1):
                wanted[x] = (wanted[x] | (sets.reads[k, x] & ~memory[x])) & ~sets.writes[k, x]
    return cost


@counting_nothing
def first_missing(graph, sets, memory, t):
    """The first operation that stage t must run with this memory, t itself where it lacks nothing."""
    wanted = sets.scratch[WANTED]
    for w in range(len(memory)):
        wanted[w] = sets.reads[t, w] & ~memory[w]
    k = t
    for w in range(len(memory) - 1, -1, -1):
        while wanted[w]:
            k = graph.producer[64 * w + highest(wanted[w])]
            for x in range(w + 1):
                wanted[x] = (wanted[x] | (sets.reads[k, x] & ~memory[x])) & ~sets.writes[k, x]
    return k


@counting_nothing
def lock(graph, sets, memory, t, first, locked):
    """Put into ``locked`` what is in memory, and stage t still reads and could not produce from ``first`` on."""
    wanted = sets.scratch[WANTED]
    for w in range(len(memory)):
        wanted[w] = sets.reads[t, w] & ~memory[w]
        locked[w] = sets.reads[t, w] & memory[w]
    for w in range(len(memory) - 1, -1, -1):
        while wanted[w]:
            k = graph.producer[64 * w + highest(wanted[w])]
            for x in range(w + 1):
                locked[x] |= sets.reads[k, x] & memory[x]
                wanted[x] = (wanted[x] | (sets.reads[k, x] & ~memory[x])) & ~sets.writes[k, x]
    for v in range(graph.output_start[first], graph.output_start[t]):
        take(locked, v)


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


@entry
def search(graph, sets, states, budget, R):
    """Search until nothing is left below the limit, a schedule is proven cheapest, there is no more room, or it pauses.

    Called again with what a pause left, it goes on from there. ``sets`` and ``states`` are empty at first, but for the
    limits. R, uint8 of shape (n, n), all 0, is set to the schedule that was found. Returns whether the search came to
    its end, whether it only pauses, whether a schedule was found, and what the recomputations of any schedule that
    costs less than the limit cost at least.
    """
    n = len(graph.costs)
    if states.counts[STATES] == 0:
        fill(graph, sets, states.limits[LIMIT])
        find_moments(graph, sets, budget)
        reach(states, 0, 0, sets.scratch[AFTER], 0.0, 0.0, -1, -1, n)
    least, room, ended = 0.0, True, states.counts[WAITING] == 0
    while room and not ended and states.counts[WORK] <= states.counts[PAUSE]:
        least = max(least, ((states.keys[0] + (1 << DEPTH) - 1) >> DEPTH) * states.limits[UNIT])
        s = next_state(states)
        if states.stage[s] == n:
            ended = True
        elif not states.expanded[s]:
            states.expanded[s] = True
            room = expand(graph, sets, states, s, budget)
        ended = ended or (room and states.counts[WAITING] == 0)
    goal = states.counts[GOAL]
    if goal:
        trace(states, goal, R)
    return ended, room and not ended, goal > 0, least


@counting_nothing
def trace(states, s, R):
    """Set R to what was run on the way to state s."""
    while states.parent[s] >= 0:
        R[states.stage[states.parent[s]], states.operation[s]] = 1
        s = states.parent[s]
