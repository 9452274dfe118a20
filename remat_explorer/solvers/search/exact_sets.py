"""Sets of groups in compiled code: what a graph's operations need, and what must run again."""

from __future__ import annotations

import math

from numba.cpython.unsafe.numbers import leading_zeros

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.exact_space import WANTED


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
