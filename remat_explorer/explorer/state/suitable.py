"""Which strategies a graph is not for, and why."""

from __future__ import annotations

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.once import once
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.heuristics.chain import require_chain
from remat_explorer.solvers.method import Support

ONLY_CHAINS = "only for chains"  # in a list, where there is room for no more


@once
def unsuitable(graph: Graph) -> dict[str, str]:
    """For each strategy that takes chains alone, why the graph is none; nothing where it is one.

    >>> from dataclasses import replace
    >>> from remat_explorer.instances import linear
    >>> unsuitable(linear(4))
    {}
    """
    try:
        require_chain(graph, "")
    except SolverError as error:
        reason = str(error).partition(". This strategy")[0]
        return {name: reason for name, method in STRATEGIES.items() if method.general_graphs is Support.NO}
    return {}
