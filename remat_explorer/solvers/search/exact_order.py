"""The exact search itself: states in the order of the least that they can cost; compiled.

A* (Hart, Nilsson and Raphael, 1968): no state is expanded before one from which a cheaper schedule might follow.
"""

from __future__ import annotations

from remat_explorer.solvers.search.compilation import counting_nothing, entry
from remat_explorer.solvers.search.exact_bound import find_moments
from remat_explorer.solvers.search.exact_moves import expand
from remat_explorer.solvers.search.exact_sets import fill
from remat_explorer.solvers.search.exact_space import AFTER, UNIT, WAITING
from remat_explorer.solvers.search.exact_states import DEPTH, next_state, reach


@entry
def search(graph, sets, states, budget, R):
    """Search until nothing is left below the limit, a schedule is proven cheapest, or there is no more room.

    Args:
        graph: a `FlatGraph`.
        sets: `Sets`, and
        states: `States`, both empty but for the limits.
        budget: bytes, resident bytes included.
        R: uint8 of shape (n, n), all 0; set to the schedule that was found.

    Returns:
        Whether a schedule was found, and what the recomputations of any schedule cost at least, or -1 if no schedule
        costs less than the limit.
    """
    n = len(graph.costs)
    fill(graph, sets)
    find_moments(graph, sets, budget)
    reach(sets, states, 0, 0, sets.scratch[AFTER], 0.0, 0.0, -1, -1, n)
    while states.counts[WAITING]:
        least = ((states.keys[0] + (1 << DEPTH) - 1) >> DEPTH) * states.limits[UNIT]
        s = next_state(states)
        if states.expanded[s]:
            continue
        states.expanded[s] = True
        if states.stage[s] == n:
            trace(states, s, R)
            return True, least
        if not expand(graph, sets, states, s, budget):
            return False, least
    return False, -1.0


@counting_nothing
def trace(states, s, R):
    """Set R to what was run on the way to state s."""
    while states.parent[s] >= 0:
        R[states.stage[states.parent[s]], states.operation[s]] = 1
        s = states.parent[s]
