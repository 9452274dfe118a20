"""Schedules that are constructed in a moment, to begin with: on long chains a search hardly finds as good ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from remat_explorer.errors import SolverError
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.heuristics.binomial_schedule import binomial_within
from remat_explorer.solvers.heuristics.chain import require_chain
from remat_explorer.solvers.persistent.chain import chain_of
from remat_explorer.solvers.persistent.cheapest import cheapest_persistent

MOST_BLOCKS = 64  # the dynamic program takes half a second of them, and time by the cube


def constructed(condensed: Condensed, budget: int, over: Callable[[], bool] = lambda: False) -> Iterator[Schedule]:
    """Schedules within the budget: REVOLVE's of a chain, and the best persistent one of a chain of blocks.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        over: whether to end with what was found.

    >>> from remat_explorer.instances import linear
    >>> [schedule.cost for schedule in constructed(Condensed.of(linear(32)), 6)]
    [111.0, 111.0]
    """
    graph = condensed.graph
    with suppress(SolverError):  # no chain
        require_chain(graph, "")
        if (schedule := binomial_within(graph, budget, over)) is not None:
            yield schedule
    with suppress(SolverError):  # no chain of blocks
        chain = chain_of(condensed)
        if chain.blocks <= MOST_BLOCKS and (schedule := cheapest_persistent(chain, budget, over=over)) is not None:
            yield schedule
