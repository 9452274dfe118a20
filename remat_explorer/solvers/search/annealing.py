"""Simulated annealing over schedules of one graph within one budget; compiled.

The energy of a schedule is its cost as a ratio to computing everything once, plus w times the bytes above the budget,
summed over the stages, as a ratio to the budget. The weight w grows while the budget is exceeded and shrinks while it
is not, so that the search stays near the edge of the budget, where the cheap schedules are.
"""

from __future__ import annotations

import math

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.solvers.search.account import excess, replay
from remat_explorer.solvers.search.compiled_state import AGAIN, BETTER, LOGGED
from remat_explorer.solvers.search.flips import load, tidy, undo
from remat_explorer.solvers.search.moves import evict_some, exchange, keep, move, relieve, uniform

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

    Args:
        graph: a `FlatGraph`.
        state: a `FlipState`, changed; ``best`` in it becomes the best schedule where a better one is found.
        budget: bytes, resident bytes included.
        allowed: which operations may run again, bool of shape (n,).
        settings: temperature at the beginning and at the end, w, and cost of the recomputations of the best schedule
            within the budget, float64 of shape (4,); the last two are changed.
        random: state of the generator, uint64 of shape (1,).
        peaks: space for n int64.
        stack: space for the operations of one move, int32.
        stopped: bool of shape (1,); once True the annealing ends.

    Returns:
        How many times a better schedule was found.
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
