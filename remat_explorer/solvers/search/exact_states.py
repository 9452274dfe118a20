"""The table of states and the heap of those that wait, in compiled code.

A state's key is what its recomputations cost so far and at least from there on, in small units, and with equal costs
the later stage comes first. So the first state that is taken out has the least cost, rounded down, that any schedule
can have.
"""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.exact_space import DEPTH, GOAL, LIMIT, STATES, UNIT, WAITING


@counting_nothing
def reach(states, t, position, memory, paid, left, parent, operation, n):
    """Put a state that costs ``paid`` and ``left`` at least into the table and the heap, unless a known one is as good.

    Returns:
        Whether there was room for it.
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
