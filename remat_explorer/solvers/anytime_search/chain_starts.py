"""Schedules that are constructed in a moment, to begin with: on long chains a search hardly finds as good ones.

Guides for walks through a chain of blocks: the inputs of blocks that persistent checkpointing keeps.

Where only few of these inputs fit into memory at a time, the cost depends on which of them are kept, and when, and a
walk alone decides that badly. The dynamic program of `remat_explorer.solvers.chain_checkpointing` decides it well, but
runs blocks as a whole, for which little memory is not enough. So it is asked as if blocks took less memory than that,
by several guesses. Walks keep what it keeps, and compute other values again where they have to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.bounds.few_moments import guides_to
from remat_explorer.solvers.chain_checkpointing.block_chain import Chain, chain_of
from remat_explorer.solvers.chain_checkpointing.chain_program import (
    ChainProgram,
    cheapest_persistent,
    needs_of,
    with_less_memory,
)
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.methods.chen import require_chain
from remat_explorer.solvers.methods.griewank import binomial_within
from remat_explorer.solvers.search.local_search import Guide
from remat_explorer.solvers.solver_interface import Limits

BINOMIAL, PERSISTENT = 0.25, 0.1  # shares of the time that is left
_MOST_PLANNED_BLOCKS = 300  # the dynamic program takes a second of them, and time by the cube


def constructed_schedules(condensed: CondensedGraph, budget: int, limits: Limits) -> Iterator[Schedule]:
    """Schedules within the budget: REVOLVE's of a chain, and the best persistent one of a chain of blocks."""
    graph = condensed.graph
    with suppress(SolverError):  # no chain
        require_chain(graph, "")
        share = limits.share(BINOMIAL)
        if (schedule := binomial_within(graph, budget, lambda: share.over)) is not None:
            yield schedule
    with suppress(SolverError):  # no chain of blocks
        chain, rest = chain_of(condensed), limits.share(PERSISTENT)
        if chain.blocks > _MOST_PLANNED_BLOCKS:
            return
        if (schedule := cheapest_persistent(chain, budget, over=lambda: rest.over)) is not None:
            yield schedule


EASED = (0.0, 0.1, 0.2, 0.3, 0.5, 1.0)  # what is left of a block's memory above its largest operation's
BUDGETS = 1.0, 1.02  # times the budget: the program rounds sizes up
SMALL = 0.001  # share of the budget below which values may be read by any block
SLOTS = 300  # steps in which the program tells memory apart
_MOST_GUIDED_BLOCKS = 200  # of a chain: the table of the program takes memory by the square, and time by the cube


def chain_guides(condensed: CondensedGraph, budget: int, over: Callable[[], bool] = lambda: False) -> list[Guide]:
    """Guides towards what the program keeps, for each guess with which it finds a schedule.

    There are none where the graph is no chain of blocks.
    """
    guides: list[Guide] = []
    with suppress(SolverError):  # no chain of blocks
        chain = chain_of(condensed, int(SMALL * budget))
        if chain.blocks > _MOST_GUIDED_BLOCKS:
            return []
        needs = needs_of(chain)
        for share in EASED:
            if over():
                break
            blocks = with_less_memory(chain, needs, share)
            for times in BUDGETS:
                program = ChainProgram(chain, int(times * budget), SLOTS, needs=blocks)
                if program.run(over) and np.isfinite(program.cost):
                    guides += guides_to(*_held(chain, program.held()))
    return guides


def _held(chain: Chain, kept: list[frozenset[int]]) -> tuple[np.ndarray, np.ndarray]:
    """What is held as `guides_to` takes it: a row for the part of each block, and the last one for the first sweep."""
    condensed = chain.condensed
    start = sum(map(len, chain.forward))
    held = np.where(condensed.producer < start, 0.0, 0.5) * np.ones((len(kept), 1))
    row = np.full(condensed.n, len(kept) - 1)
    for j, operations in enumerate(chain.backward):
        row[list(operations)] = j
        held[j, np.isin(condensed.producer, chain.forward[j])] = 0.5
    for j, groups in enumerate(kept):
        held[j, list(groups)] = 1.0
    return held, row
