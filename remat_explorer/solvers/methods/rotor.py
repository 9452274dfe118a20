"""The optimal persistent schedule of a chain of blocks, by dynamic programming, as in the tool rotor.

Beaumont, Eyraud-Dubois, Hermann, Joly and Shilova, "Optimal checkpointing for heterogeneous chains: how to train deep
neural networks with limited memory", arXiv 1911.13214. The program is exact for a chain whose blocks are run as a
whole; this makes it fast, and is what keeps it above the optimum of all schedules. A graph that is no chain is cut
into blocks where its forward pass can be (`remat_explorer.solvers.chain_checkpointing.block_chain`).
"""

from __future__ import annotations

import numbers

from remat_explorer.errors import SolverError, shown
from remat_explorer.graph import Graph
from remat_explorer.solvers.chain_checkpointing.block_chain import chain_of
from remat_explorer.solvers.chain_checkpointing.chain_program import SLOTS, cheapest_persistent
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.solver_interface import Answer, Limits


def solve_rotor(graph: Graph, budget: int, limits: Limits, slots: int = SLOTS) -> Answer:
    """The cheapest persistent schedule of the graph's chain of blocks within the budget.

    Memory is told apart in ``slots`` steps; sizes are rounded up, so that no schedule exceeds the budget, and fewer
    steps find dearer schedules.
    """
    if isinstance(slots, bool) or not isinstance(slots, numbers.Integral) or slots < 1:
        raise SolverError(f"slots is {shown(slots)}; expected a whole number of at least 1, such as {SLOTS}")
    condensed = CondensedGraph.of(graph)
    chain = chain_of(condensed)
    limits.tell(f"looking for the best checkpoints of {chain.blocks} blocks", lower_bound=graph.total_cost)
    best = cheapest_persistent(chain, budget, int(slots), lambda: limits.over)
    limits.tell("done", best, graph.total_cost)
    return Answer(best, graph.total_cost)


METHOD = Method(
    solve_rotor,
    "the best schedule of a chain of blocks in which what is kept stays until the backward pass has used it; memory is "
    "counted in slots equal steps, rounded up",
    "Beaumont et al. 2019, arXiv 1911.13214, section 4",
    general_graphs=Support.PARTLY,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("slots",),
    symbol="star-triangle-up",
)
