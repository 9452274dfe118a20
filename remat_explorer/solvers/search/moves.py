"""Random changes of a schedule, each a few flips long; compiled.

A move keeps what is computed again, computes again what is kept, or both. None asks whether the result fits: that is
for the one who accepts or takes back.
"""

from __future__ import annotations

import numpy as np

from remat_explorer.machine_code import counting_nothing
from remat_explorer.solvers.search.account import excess, replay
from remat_explorer.solvers.search.compiled_state import AGAIN
from remat_explorer.solvers.search.flips import flip, tidy

# Compiled into the machine code, so they are no settings: another value is another compilation.
DEEPEST = 8  # operations that one eviction computes again, at most
TRIES = 16  # draws until something fits a purpose
EVICTIONS = 3  # that make room for one value that is kept, at most
CASCADE = 4  # how many times an operation's own cost its removal may save, with what only it needed


@counting_nothing
def uniform(random):
    """A number in [0, 1), by splitmix64 (Steele, Lea and Flood, 2014) with its state in ``random[0]``."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) / 9007199254740992.0


@counting_nothing
def below(random, count):
    """A whole number in [0, count)."""
    return int(uniform(random) * count)


@counting_nothing
def retained(graph, state, random, allowed, t):
    """A random group that is retained into stage t and may be computed again, or -1."""
    for _ in range(TRIES):
        v = below(random, graph.output_start[t])
        if state.kept[v, t] and allowed[graph.producer[v]]:
            return v
    return -1


@counting_nothing
def overfull(state, random, budget):
    """A stage above the budget, if there is one: the first after a random stage."""
    n = len(state.peak)
    t = below(random, n)
    for _ in range(n):
        if state.peak[t] > budget:
            break
        t = t + 1 if t + 1 < n else 0
    return t


@counting_nothing
def evict_at(graph, state, random, allowed, stack, v, t):
    """Compute group v, retained into stage t, again where it is read next.

    Inputs that are retained for this read alone are computed again as well, each with a chance drawn anew per move.
    """
    while not state.reads[v, t]:
        t += 1
    run_again(graph, state, random, allowed, stack, t, graph.producer[v])


@counting_nothing
def run_again(graph, state, random, allowed, stack, t, k):
    """Run operation k in stage t, too; its inputs are retained until then, or by chance computed again."""
    chance = uniform(random)
    flip(graph, state, t, k)
    stack[0], top, flips = k, 1, 1
    while top:
        top -= 1
        k = stack[top]
        for i in range(graph.input_start[k], graph.input_start[k + 1]):
            u = graph.inputs[i]
            alone = state.kept[u, t] and state.reads[u, t] == 1 and not state.kept[u, t + 1]
            if alone and allowed[graph.producer[u]] and flips < DEEPEST and uniform(random) < chance:
                flip(graph, state, t, graph.producer[u])
                stack[top] = graph.producer[u]
                top += 1
                flips += 1


@counting_nothing
def relieve(graph, state, random, allowed, stack, budget, affordable):
    """Evict something from a stage above the budget; False if there is nothing to propose."""
    t = overfull(state, random, budget)
    v = retained(graph, state, random, allowed, t) if t else -1
    if v < 0 or graph.costs[graph.producer[v]] > affordable:
        return False
    evict_at(graph, state, random, allowed, stack, v, t)
    return True


@counting_nothing
def keep(graph, state, random, budget, affordable, weight):
    """Retain what is computed again; False if that is hopeless."""
    n = len(graph.costs)
    entry = state.again[below(random, state.numbers[AGAIN])]
    t, k = entry // n, entry % n
    spare = (affordable + CASCADE * graph.costs[k]) / weight
    added = 0
    for v in range(graph.output_start[k], graph.output_start[k + 1]):
        if state.reads[v, t] or state.kept[v, t + 1]:
            added += graph.bytes[v]
    for i in range(graph.input_start[k], graph.input_start[k + 1]):
        u = graph.inputs[i]
        if state.reads[u, t] == 1 and not state.kept[u, t + 1]:
            added -= graph.bytes[u]
    over, s = 0, t - 1
    while added > 0 and s > k and not state.runs[k, s] and not state.kept[graph.output_start[k], s]:
        over += max(state.peak[s] + added - budget, 0)
        if over > spare:
            return False
        s -= 1
    flip(graph, state, t, k)
    return True


@counting_nothing
def move(graph, state, random, allowed, stack):
    """Compute again in another stage, one operation or several of the stage; False if that is impossible."""
    n = len(graph.costs)
    entry = state.again[below(random, state.numbers[AGAIN])]
    t, k = entry // n, entry % n
    reach = 1 + int(2.0 ** (7 * uniform(random)))  # mostly near, sometimes far
    s = t - reach + below(random, 2 * reach + 1)
    if s <= k or s >= n or s == t or state.runs[k, s]:
        return False
    if uniform(random) < 0.5:
        flip(graph, state, t, k)
        run_again(graph, state, random, allowed, stack, s, k)
        return True
    many, last, most = 0, state.count[t] - 2, 1 + below(random, len(stack))
    while last >= 0 and many < most:
        if state.running[t, last] <= k:
            stack[many] = state.running[t, last]
            many += 1
        last -= 1
    for i in range(many):
        flip(graph, state, t, stack[i])
        if stack[i] < s and not state.runs[stack[i], s]:
            flip(graph, state, s, stack[i])
    return True


@counting_nothing
def exchange(graph, state, random, allowed, stack, budget, cost, most_cost, most_excess):
    """Retain what is computed again, and evict where memory is then short."""
    n = len(graph.costs)
    entry = state.again[below(random, state.numbers[AGAIN])]
    flip(graph, state, entry // n, entry % n)
    tidy(graph, state)
    for _ in range(EVICTIONS):
        replay(graph, state)
        if excess(state, budget) <= most_excess or state.cost[0] - cost > most_cost:
            break
        t = overfull(state, random, budget)
        v = retained(graph, state, random, allowed, t) if t else -1
        if v < 0:
            break
        evict_at(graph, state, random, allowed, stack, v, t)


@counting_nothing
def evict_some(graph, state, random, allowed, stack, affordable):
    """Evict something anywhere, mostly while something near is kept; False if there is nothing to propose."""
    n = len(graph.costs)
    t = 1 + below(random, n - 1)
    v = retained(graph, state, random, allowed, t)
    if v < 0:
        return False
    saved, other, s = 0.0, -1, 0
    if uniform(random) < 0.7:
        for _ in range(TRIES):
            s = t - 8 + below(random, 24)
            if 0 < s < n and state.count[s] > 1:
                other = state.running[s, below(random, state.count[s] - 1)]
                saved = CASCADE * graph.costs[other]
                break
        if other < 0:
            return False
    if graph.costs[graph.producer[v]] - saved > affordable:
        return False
    evict_at(graph, state, random, allowed, stack, v, t)
    if other >= 0 and state.runs[other, s]:
        flip(graph, state, s, other)
    return True
