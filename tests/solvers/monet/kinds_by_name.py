"""Kinds for the implementations of synthetic graphs, and graphs whose other kinds fit into no memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from remat_explorer.graph import Graph, Implementation

RANDOM = {"bits": "masks", "renormalize": "statistics", "in": "activations", "fast": "algorithms"}
SYNTHETIC = {
    "bits": "masks",
    "small index": "pooling",
    "no index": "pooling",
    "index": "pooling",
    "recomputed": "pooling",
    "output-activated": "output-activated",
    "gradient alone": "input-gradients",
    "other 0": "activations",
    "other 1": "activations",
}


def with_kinds(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The same graph, each implementation of a kind by its name."""
    return _changed(graph, lambda way: replace(way, kinds=(names[way.name],) if way.name in names else ()))


def with_room_for(graph: Graph, kinds: Collection[str]) -> Graph:
    """The same graph, in which implementations of other kinds take more memory than there is."""
    return _changed(graph, lambda way: way if set(way.kinds) <= set(kinds) else replace(way, workspace=10**12))


def _changed(graph: Graph, change: Callable[[Implementation], Implementation]) -> Graph:
    nodes = [replace(node, implementations=tuple(map(change, node.implementations))) for node in graph.operations]
    return replace(graph, operations=tuple(nodes))
