"""Operations at which a forward pass may be cut into segments: the candidates C of Chen's Algorithm 3.

Sources: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4 and Algorithm 3;
Jain et al., Checkmate (MLSys 2020), section 6.1 and appendices B.1 and B.2.
"""

from __future__ import annotations

from collections.abc import Callable

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.chain import forward_operations, require_chain

SplitPoints = Callable[[Graph], list[int]]
"""From a graph to the forward operations, ascending, whose outputs may be checkpoints."""


def chain_points(graph: Graph) -> list[int]:
    """Every forward operation of a chain (Chen et al., section 4).

    Raises:
        SolverError: if the graph is no chain; see `remat_explorer.solvers.heuristics.chain`.

    >>> from remat_explorer.instances import linear
    >>> chain_points(linear(4))
    [0, 1, 2, 3]
    """
    return _that_can_be_kept(graph, require_chain(graph, "ap-sqrt-n, ap-greedy or the linearized strategies instead"))


def articulation_split_points(graph: Graph) -> list[int]:
    """Articulation points of the undirected forward graph, and its two ends (Checkmate, appendix B.1).

    All that is computed after an articulation point follows from it alone, where it separates before from after. The
    first and the last forward operation have nothing beyond them to separate, but are split points of a chain, so they
    are split points here: on a chain the result is `chain_points`.

    >>> from remat_explorer.instances import linear
    >>> articulation_split_points(linear(4))
    [0, 1, 2, 3]
    """
    forward = forward_operations(graph)
    return _that_can_be_kept(graph, sorted({*graph.articulation_points(), *forward[:1], *forward[-1:]}))


def linearized_points(graph: Graph) -> list[int]:
    """Every forward operation, as if each read from the one before it in topological order (Checkmate, appendix B.2).

    >>> from remat_explorer.instances import linear
    >>> linearized_points(linear(4))
    [0, 1, 2, 3]
    """
    return _that_can_be_kept(graph, forward_operations(graph))


def kept_values(graph: Graph, k: int) -> list[int]:
    """Values of operation ``k`` that a checkpoint keeps: read by somebody, and not in memory to the end anyway.

    >>> from remat_explorer.instances import linear
    >>> kept_values(linear(4), 2)
    [2]
    """
    return [v for v in graph.outputs(k) if graph.readers[v] and not graph.persistent[v]]


def _that_can_be_kept(graph: Graph, operations: list[int]) -> list[int]:
    """Those with an output to keep, less the loss: after it nothing is left to cut off.

    The loss is what writes a persistent value and is read by no forward operation.
    """

    def ends_the_forward_pass(k: int) -> bool:
        persistent = any(graph.persistent[v] for v in graph.outputs(k))
        read_on = any(not graph.is_backward[reader] for v in graph.outputs(k) for reader in graph.readers[v])
        return persistent and not read_on

    return [k for k in operations if kept_values(graph, k) and not ends_the_forward_pass(k)]
