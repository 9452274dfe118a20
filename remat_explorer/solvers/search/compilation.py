"""All compiled functions, those of offsets included, compiled ahead: no search need wait for the compiler.

``python -m remat_explorer.solvers.search.compilation`` does it, about twenty seconds, unless that is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from remat_explorer.instances import linear
from remat_explorer.machine_code import entries, folder, is_own
from remat_explorer.offload import Transfers
from remat_explorer.offsets import load_offset_search
from remat_explorer.solvers.chain_checkpointing.block_chain import chain_of
from remat_explorer.solvers.chain_checkpointing.chain_program import cheapest_persistent
from remat_explorer.solvers.chain_reversal.reversal_table import fill_from
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.search.compiled_state import FlatGraph
from remat_explorer.solvers.search.exact_search import search_exactly
from remat_explorer.solvers.search.local_search import LocalSearch
from remat_explorer.solvers.search.relaxed_points import fill_memory, shortest_paths
from remat_explorer.solvers.search.renewal_search import Renewals

COMPILING = "compiling the search (once on a machine)"


def is_compiled() -> bool:
    """Whether a search begins without compiling: in this process it has, or the folder holds what it needs.

    The folder is looked at, not read, so code for another processor counts, too.
    """
    if _search_once.cache_info().currsize > 0:
        return True
    if not is_own(folder()):
        return False
    return {path.name.split("-")[0] for path in folder().glob("*/*.nbc")}.issuperset(entries())


def warm_up(tell: Callable[[str], None] | None = None) -> None:
    """Compile everything now, or read it from disk, so that no search need wait; at once from the second call on.

    ``tell`` gets `COMPILING` where nothing is compiled yet, and this takes longer than a moment.
    """
    if tell is not None and not is_compiled():
        tell(COMPILING)
    _search_once()


@cache
def _search_once() -> None:
    load_offset_search()
    condensed = CondensedGraph.of(linear(2))
    flat, n, groups = FlatGraph.of(condensed), condensed.n, condensed.groups
    LocalSearch(condensed, 3).run(1)
    R, S, stages = np.eye(n), np.zeros((n, groups)), np.arange(n)
    fill_memory(flat, R, S, np.ones(n, dtype=bool), stages, condensed.base, 1, np.empty(groups), np.empty((n, n)))
    cost, through = np.zeros((n, n)), np.zeros((n, n), dtype=np.int32)
    ends = np.zeros(groups, dtype=np.int64)
    shortest_paths(flat, R, S, np.zeros((n + 1, n)), stages, 0, n, cost, through, np.empty(groups), ends)
    fill_from(np.zeros((2, 1, 2)), np.zeros((1, 2)), 0, np.ones(1), np.ones(1), *(ends[:1],) * 3, np.ones(1))
    search_exactly(condensed, 3)
    renewals = Renewals(condensed, 3, Transfers(1.0, 1.0))
    chain = renewals.begin(may_run=True)
    assert chain is not None
    renewals.improve(chain, 1, 0.0)
    renewals.plan(chain)
    cheapest_persistent(chain_of(condensed), 3)


if __name__ == "__main__":
    warm_up(print)
