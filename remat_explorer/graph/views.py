"""The training graph as networkx knows graphs, for algorithms and drawings that this package does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_explorer.graph.contents import Contents

if TYPE_CHECKING:
    import networkx


def to_networkx(graph: Contents) -> networkx.DiGraph:
    """See `Graph.to_networkx`. Attributes are plain numbers and words, which every file format of networkx takes."""
    import networkx  # a tenth of a second, which only those who ask for it pay

    view = networkx.DiGraph(name=graph.name, resident_bytes=graph.resident_bytes)
    for k, node in enumerate(graph.operations):
        view.add_node(
            ("operation", k),
            bipartite=0,
            name=node.name,
            phase=node.phase,
            cost=float(node.default.cost),
            workspace=node.default.workspace,
            implementations=len(node.implementations),
        )
    for v, value in enumerate(graph.values):
        phase = graph.operations[int(graph.producer[v])].phase
        view.add_node(
            ("value", v),
            bipartite=1,
            name=value.name,
            phase=phase,
            bytes=value.bytes,
            persistent=value.persistent,
        )
    for k, node in enumerate(graph.operations):
        for way in reversed(node.implementations):  # the default last: its word on a shared edge stands
            default = way is node.default
            view.add_edges_from(((("value", v), ("operation", k)) for v in way.inputs), default=default)
            view.add_edges_from(((("operation", k), ("value", v)) for v in way.outputs), default=default)
    return view


def articulation_points(graph: Contents) -> tuple[int, ...]:
    """See `Graph.articulation_points`."""
    import networkx

    forward = networkx.Graph()
    forward.add_nodes_from(k for k, backward in enumerate(graph.is_backward) if not backward)
    for v, readers in enumerate(graph.readers):
        maker = int(graph.producer[v])
        forward.add_edges_from((maker, reader) for reader in readers if maker in forward and reader in forward)
    return tuple(sorted(networkx.articulation_points(forward)))
