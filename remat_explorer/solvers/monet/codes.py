"""Which implementations of a graph may be chosen, and which of those can run at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph, Implementation

Codes = Sequence[Collection[int]]
"""For each operation the numbers, from 1, of the implementations that may be chosen."""


def allowed_codes(graph: Graph, implementations: str | Collection[str]) -> list[list[int]]:
    """The implementations that an option allows; an operation's default always is.

    Args:
        graph: the training graph.
        implementations: "all"; "exact", those whose results are bit-equal; or names of implementations.

    Raises:
        UnknownNameError: if no implementation of the graph has such a name.

    >>> from remat_explorer.instances import linear
    >>> allowed_codes(linear(1), "exact")
    [[1], [1], [1]]
    """
    if isinstance(implementations, str) and implementations not in ("all", "exact"):
        implementations = [implementations]
    if not isinstance(implementations, str):
        known = {way.name for node in graph.operations for way in node.implementations}
        for name in implementations:
            if name not in known:
                raise UnknownNameError("implementation", name, sorted(known | {"all", "exact"}))

    def allows(way: Implementation) -> bool:
        if implementations == "all":
            return True
        return way.tolerance == 0 if implementations == "exact" else way.name in implementations

    return [
        [
            code
            for code, way in enumerate(node.implementations, 1)
            if allows(way) or way is node.default or (node.optional and implementations != "exact")
        ]
        for node in graph.operations
    ]


def possible_codes(graph: Graph, codes: Codes | None) -> list[list[int]]:
    """The codes without implementations that read what nothing writes, and without what serves nothing."""
    ways = [node.implementations for node in graph.operations]
    kept = [sorted(codes[k]) if codes is not None else list(range(1, len(ways[k]) + 1)) for k in range(graph.n)]
    while True:
        written = {v for k, chosen in enumerate(kept) for code in chosen for v in ways[k][code - 1].outputs}
        read = {v for k, chosen in enumerate(kept) for code in chosen for v in ways[k][code - 1].inputs}
        before = sum(map(len, kept))
        for k, node in enumerate(graph.operations):
            kept[k] = [
                code
                for code in kept[k]
                if written.issuperset(ways[k][code - 1].inputs)
                and not (node.optional and read.isdisjoint(ways[k][code - 1].outputs))
            ]
        if sum(map(len, kept)) == before:
            return kept
