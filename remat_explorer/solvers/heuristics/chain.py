"""Chains: the graphs that Griewank's and Chen's methods were made for.

A graph is a chain here if

1. all forward operations come before all backward operations;
2. the forward operations are a path: each reads values of the one just before it, and of no other;
3. a backward operation reads values of at most two forward operations, neighbours on the path (what a layer read and
   what it wrote), beside the gradients of other backward operations, of which it may read any;
4. the backward operations go back along the path: none reads a value of an earlier forward operation than one that
   comes after it needs again, but for the layer in progress.

In numbers: with P(t) the positions on the path of the forward values that backward operation t reads,
max P(t) - min P(t) <= 1, and max P(t') <= min P(t) + 1 for t < t'. An operation may write several values, and a layer
may have several backward operations, as captured networks do.
"""

from __future__ import annotations

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph


def forward_operations(graph: Graph) -> list[int]:
    """Numbers of the forward operations, ascending.

    >>> from remat_explorer.instances import linear
    >>> forward_operations(linear(3))
    [0, 1, 2]
    """
    return [k for k in range(graph.n) if not graph.is_backward[k]]


def forward_positions(graph: Graph, k: int) -> list[int]:
    """Operations, ascending, whose forward values operation ``k`` reads.

    >>> from remat_explorer.instances import linear
    >>> forward_positions(linear(3), 3), forward_positions(linear(3), 6)
    ([2], [0])
    """
    producers = {int(graph.producer[v]) for v in graph.inputs(k)}
    return sorted(producer for producer in producers if not graph.is_backward[producer])


def require_chain(graph: Graph, instead: str) -> list[int]:
    """The path of forward operations.

    Args:
        graph: the training graph.
        instead: names of the strategies that take other graphs, for the message.

    Raises:
        SolverError: if the graph is no chain, naming the first operation that breaks the path.

    >>> from remat_explorer.instances import linear
    >>> require_chain(linear(3), "linearized-sqrt-n")
    [0, 1, 2]
    """
    path = forward_operations(graph)
    if not path:
        raise SolverError(f"{graph.name!r} is no chain: it has no forward operation. Use {instead}")
    for k in range(graph.n):
        broken = _forward_break(graph, k) if k < len(path) else _backward_break(graph, k)
        if broken:
            raise SolverError(
                f"{graph.name!r} is no chain: {broken}. This strategy is for chains of layers; use {instead}"
            )
    lowest = len(path)
    for k in range(len(path), graph.n):
        read = forward_positions(graph, k)
        if read and read[-1] > lowest + 1:
            late, done = graph.operations[read[-1]].name, graph.operations[lowest].name
            raise SolverError(
                f"{graph.name!r} is no chain: backward operation {graph.operations[k].name!r} (number {k}) reads what "
                f"{late!r} wrote, after the backward pass has come down to {done!r}. "
                f"This strategy is for chains of layers; use {instead}"
            )
        lowest = min(lowest, *read) if read else lowest
    return path


def _forward_break(graph: Graph, k: int) -> str | None:
    """Why operation ``k`` does not continue the path, or None."""
    name = graph.operations[k].name
    if graph.is_backward[k]:
        return f"backward operation {name!r} (number {k}) comes before the last forward operation"
    read = sorted({int(graph.producer[v]) for v in graph.inputs(k)})
    if read == ([k - 1] if k else []):
        return None
    given = ", ".join(repr(graph.operations[j].name) for j in read) or "no operation"
    expected = repr(graph.operations[k - 1].name) if k else "no operation"
    return f"forward operation {name!r} (number {k}) reads from {given}; a path needs it to read from {expected} alone"


def _backward_break(graph: Graph, k: int) -> str | None:
    """Why backward operation ``k`` reads too much of the path, or None."""
    read = forward_positions(graph, k)
    if not read or read[-1] - read[0] <= 1:
        return None
    given = ", ".join(repr(graph.operations[j].name) for j in read)
    return (
        f"backward operation {graph.operations[k].name!r} (number {k}) reads from the forward operations {given}; "
        "in a chain it reads from one, or from two neighbours"
    )
