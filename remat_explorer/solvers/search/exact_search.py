"""Proven optima of small problems in milliseconds: a search over sets of values in memory, without a linear program."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.exact_space import BITS, LIMIT, MOST_WORK, UNIT, Sets, States
from remat_explorer.solvers.search.flat_graph import FlatGraph
from remat_explorer.solvers.search.walks import within

FINEST = 1e-9  # unit of the costs that are compared, as a share of the graph's cost


@dataclass(frozen=True)
class Exact:
    """What an exact search came to.

    Attributes:
        schedule: a cheapest schedule, or None where none below the limit was found.
        bound: no schedule within the budget costs less; infinity where there is none.
        proven: whether the search came to its end.
    """

    schedule: Schedule | None
    bound: float
    proven: bool
    work: int = 0
    states: int = 0


def search_exactly(condensed: Condensed, budget: int, limit: float = math.inf, work: int = 100_000) -> Exact:
    from remat_explorer.solvers.search.exact_order import search  # compiled on its first use

    total = condensed.graph.total_cost
    sets = Sets.empty(condensed)
    states = States.empty(work, sets.reads.shape[1])
    states.limits[LIMIT], states.limits[UNIT] = limit - total, FINEST * total or 1.0
    states.counts[MOST_WORK] = work
    R = np.zeros((condensed.n, condensed.n), dtype=np.uint8)
    found, least = search(FlatGraph.of(condensed), sets, states, int(budget), R)
    w, st = int(states.counts[2]), int(states.counts[0])
    if found:
        schedule = within(condensed.schedule(R), budget)
        return Exact(schedule, total + least, schedule is not None, w, st)
    if least < 0:
        return Exact(None, limit, True, w, st)
    return Exact(None, total + least, False, w, st)
