"""Proven optima of small problems in a millisecond: a search over sets of values in memory, without a linear program.

Where few values can be traded there are few sets worth having, and looking at all of them is faster than one linear
program. A state is a stage, a place in it, and the groups of values in memory; see `exact_order` for how one follows
another, and for what each must cost at least. The search ends after so much work, counted in sets looked
at, and even then the cheapest state that is left is a bound on every schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.search.compiled_state import (
    LIMIT,
    MOST_STAGES,
    MOST_WORK,
    PAUSE,
    UNIT,
    FlatGraph,
    Sets,
    States,
)
from remat_explorer.solvers.search.local_search import if_within

WORK = 20_000  # sets, about five milliseconds
SLICE = 50_000  # sets between two questions whether the time is up
FINEST = 1e-9  # unit of the costs that the search compares, as a share of the graph's cost


@dataclass(frozen=True)
class ExactResult:
    """What an exact search came to."""

    schedule: Schedule | None  # the cheapest schedule, or None where none below the limit was found
    bound: float  # no schedule within the budget costs less; infinity where there is none
    proven: bool  # whether nothing below the limit is cheaper than the schedule, or there is nothing below the limit


def search_exactly(
    condensed: CondensedGraph,
    budget: int,
    limit: float = math.inf,
    work: int = WORK,
    over: Callable[[], bool] = lambda: False,
) -> ExactResult:
    """The cheapest schedule within the budget that costs less than a limit, or a bound if that is too much work.

    Lower limits take less work. ``work`` is sets of values to look at, at most, each for a quarter of a microsecond to
    a microsecond.
    """
    total = condensed.graph.total_cost
    if condensed.n > MOST_STAGES:
        return ExactResult(None, total, False)
    from remat_explorer.solvers.search.exact_order import search  # compiled on its first use

    sets = Sets.empty(condensed)
    states = States.empty(work, sets.reads.shape[1])
    states.limits[LIMIT], states.limits[UNIT] = limit - total, FINEST * total or 1.0
    states.counts[MOST_WORK] = work
    flat, least, pauses = FlatGraph.of(condensed), 0.0, True
    R, ended, has_schedule = np.zeros(0), False, False
    while pauses and not over():
        states.counts[PAUSE] += SLICE
        R = np.zeros((condensed.n, condensed.n), dtype=np.uint8)
        ended, pauses, has_schedule, more = search(flat, sets, states, int(budget), R)
        least = max(least, more)
    if ended and not has_schedule:
        return ExactResult(None, limit, True)
    schedule = if_within(condensed.schedule(R), budget) if has_schedule else None
    if schedule is not None and ended:
        return ExactResult(schedule, schedule.cost, True)
    return ExactResult(schedule, total + least, False)
