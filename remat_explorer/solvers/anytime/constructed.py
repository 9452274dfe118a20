"""Schedules that are constructed in a moment, to begin with: on long chains a search hardly finds as good ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from remat_explorer.errors import SolverError
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods.chen import require_chain
from remat_explorer.solvers.methods.griewank import binomial_within
from remat_explorer.solvers.persistent.chain import chain_of
from remat_explorer.solvers.persistent.cheapest import cheapest_persistent

BINOMIAL, PERSISTENT = 0.25, 0.1  # shares of the time that is left
MOST_BLOCKS = 300  # the dynamic program takes a second of them, and time by the cube


def constructed(condensed: Condensed, budget: int, limits: Limits) -> Iterator[Schedule]:
    """Schedules within the budget: REVOLVE's of a chain, and the best persistent one of a chain of blocks.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        limits: time for everything, of which this takes its shares at most.

    >>> from remat_explorer.instances import linear
    >>> [schedule.cost for schedule in constructed(Condensed.of(linear(32)), 6, Limits())]
    [111.0, 111.0]
    """
    graph = condensed.graph
    with suppress(SolverError):  # no chain
        require_chain(graph, "")
        share = limits.share(BINOMIAL)
        if (schedule := binomial_within(graph, budget, lambda: share.over)) is not None:
            yield schedule
    with suppress(SolverError):  # no chain of blocks
        chain, rest = chain_of(condensed), limits.share(PERSISTENT)
        if chain.blocks > MOST_BLOCKS:
            return
        if (schedule := cheapest_persistent(chain, budget, over=lambda: rest.over)) is not None:
            yield schedule
