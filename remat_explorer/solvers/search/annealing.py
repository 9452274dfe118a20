"""Simulated annealing over schedules of one graph within one budget; compiled.

The energy of a schedule is its cost as a ratio to computing everything once, plus w times the bytes above the budget,
summed over the stages, as a ratio to the budget. The weight w grows while the budget is exceeded and shrinks while it
is not, so that the search stays near the edge of the budget, where the cheap schedules are.

Random changes of a schedule, each a few flips long; compiled.

A move keeps what is computed again, computes again what is kept, or both. None asks whether the result fits: that is
for the one who accepts or takes back.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.solvers.search.compiled_state import AGAIN, BETTER, LOGGED, STALE
from remat_explorer.solvers.search.flips import flip, load, tidy, undo


@counting_nothing
def replay(graph, state):
    """Compute the peaks of stale stages anew, operation by operation, each value freed after its last read."""
    for i in range(state.numbers[STALE]):
        t = state.stale[i]
        state.is_stale[t] = False
        state.peak[t] = peak_of(graph, state, t)
    state.numbers[STALE] = 0


@counting_nothing
def peak_of(graph, state, t):
    """Most bytes in memory in stage t."""
    for i in range(state.count[t]):
        k = state.running[t, i]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            state.unread[graph.inputs[j]] += 1
    held, peak = state.start[t], 0
    for i in range(state.count[t]):
        k = state.running[t, i]
        during = held + graph.needed[k]
        for j in range(graph.input_start[k], graph.input_start[k + 1]):
            u = graph.inputs[j]
            state.unread[u] -= 1
            if not state.unread[u] and not state.kept[u, t + 1]:
                held -= graph.bytes[u]
                if u == graph.overwritten[k]:
                    during -= graph.credit[k]
        peak = max(peak, during)
        for v in range(graph.output_start[k], graph.output_start[k + 1]):
            if state.unread[v] or state.kept[v, t + 1]:
                held += graph.bytes[v]
    return peak


@counting_nothing
def excess(state, budget):
    """Bytes above the budget, summed over the stages."""
    total = 0
    for t in range(len(state.peak)):
        total += max(state.peak[t] - budget, 0)
    return total


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


HOT, COLD, WEIGHT, BEST = 0, 1, 2, 3  # entries of settings

# Compiled into the machine code, so they are no settings: another value is another compilation.
ADAPTATION = 1e-4  # share by which the weight changes in an iteration
LEAST_WEIGHT = 1e-3  # smallest weight
MOST_WEIGHT = 100.0  # largest weight
RELIEVE = 0.4  # draws below evict from a stage above the budget, while there is one
KEEP = 0.65  # others below retain what is computed again
MOVE = 0.75  # others below compute again in another stage
EXCHANGE = 0.85  # others below retain what is computed again and evict where memory is then short; the rest evict


@counting_nothing
def copy(source, target):
    """Copy a row."""
    for i in range(len(source)):
        target[i] = source[i]


@entry
def start(graph, state, again):
    """Begin with recomputations as t * n + k, int64 of any length."""
    load(graph, state, again)
    replay(graph, state)


@entry
def anneal(graph, state, budget, allowed, settings, first, last, length, random, peaks, stack, stopped):
    """Iterations ``first`` up to ``last`` of a cooling of ``length`` iterations.

    ``state`` is changed; ``best`` in it becomes the best schedule where a better one is found. ``settings`` are the
    temperature at the beginning and at the end, w, and the cost of the recomputations of the best schedule within the
    budget, float64 of shape (4,); the last two are changed. ``random`` is uint64 of shape (1,); ``peaks`` is space for
    n int64, ``stack`` for the operations of one move, int32. Returns how many times a better schedule was found.
    """
    n, total = len(graph.costs), 1e-300
    for k in range(n):
        total += graph.costs[k]
    copy(state.peak, peaks)
    cost, over = state.cost[0], excess(state, budget)
    improved, temperature = 0, 0.0
    for iteration in range(first, last):
        if iteration % 64 == 0 or iteration == first:
            if stopped[0]:
                break
            temperature = settings[HOT] * (settings[COLD] / settings[HOT]) ** (iteration / length)
        settings[WEIGHT] *= 1 - ADAPTATION if over == 0 else 1 + ADAPTATION
        settings[WEIGHT] = min(max(settings[WEIGHT], LEAST_WEIGHT), MOST_WEIGHT)
        weight = settings[WEIGHT] * total / budget  # cost of a byte
        rise = -temperature * total * math.log(uniform(random) + 1e-300)  # Metropolis: accepted up to this
        affordable = rise + weight * over
        state.numbers[LOGGED] = 0
        state.cost[0] = cost
        kind, proposed = uniform(random), True
        if over > 0 and kind < RELIEVE:
            proposed = relieve(graph, state, random, allowed, stack, budget, affordable)
        elif kind >= EXCHANGE or state.numbers[AGAIN] == 0:
            proposed = evict_some(graph, state, random, allowed, stack, affordable)
        elif kind < KEEP:
            proposed = keep(graph, state, random, budget, affordable, weight)
        elif kind < MOVE:
            proposed = move(graph, state, random, allowed, stack)
        else:
            exchange(graph, state, random, allowed, stack, budget, cost, affordable, over)
        if not proposed:
            continue
        tidy(graph, state)
        accepted, still_over = state.cost[0] - cost <= affordable, over
        if accepted:
            replay(graph, state)
            still_over = excess(state, budget)
            accepted = state.cost[0] - cost + weight * (still_over - over) <= rise
        if not accepted:
            undo(graph, state)
            copy(peaks, state.peak)
            continue
        cost, over = state.cost[0], still_over
        copy(state.peak, peaks)
        if over == 0 and cost < settings[BEST] - 1e-12 * total:
            settings[BEST] = cost
            state.numbers[BETTER] = state.numbers[AGAIN]
            copy(state.again[: state.numbers[AGAIN]], state.best)
            improved += 1
    state.cost[0] = cost
    return improved
