"""The exact search itself: states in the order of the least that they can cost; compiled.

A* (Hart, Nilsson and Raphael, 1968): no state is expanded before one from which a cheaper schedule might follow.
"""

from __future__ import annotations

from remat_explorer.machine_code import counting_nothing, entry
from remat_explorer.solvers.search.exact_bound import find_moments
from remat_explorer.solvers.search.exact_moves import expand
from remat_explorer.solvers.search.exact_sets import fill
from remat_explorer.solvers.search.exact_space import AFTER, DEPTH, GOAL, LIMIT, PAUSE, STATES, UNIT, WAITING, WORK
from remat_explorer.solvers.search.exact_states import next_state, reach


@entry
def search(graph, sets, states, budget, R):
    """Search until nothing is left below the limit, a schedule is proven cheapest, there is no more room, or it pauses.

    Called again with what a pause left, it goes on from there.

    Args:
        graph: a `FlatGraph`.
        sets: `Sets`, and
        states: `States`, both empty but for the limits at first.
        budget: bytes, resident bytes included.
        R: uint8 of shape (n, n), all 0; set to the schedule that was found.

    Returns:
        Whether the search came to its end, whether it only pauses, whether a schedule was found, and what the
        recomputations of any schedule that costs less than the limit cost at least.
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
