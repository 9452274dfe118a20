"""Which implementations of a graph may be chosen, by name or by kind, and which of those can run at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from remat_explorer.capture_options import KINDS
from remat_explorer.errors import SolverError, UnknownNameError, shown
from remat_explorer.graph import Graph, Implementation
from remat_explorer.graph.rules import stands_in

Codes = Sequence[Collection[int]]
"""For each operation the numbers, from 1, of the implementations that may be chosen."""


def allowed_codes(graph: Graph, implementations: str | Collection[str]) -> list[list[int]]:
    """The implementations that an option allows; an operation's default always is.

    Args:
        graph: the training graph.
        implementations: "all"; "exact", those whose results are bit-equal; or names and kinds of implementations: one,
            several with commas between them, or a collection. An implementation of several kinds needs all of them.

    Raises:
        UnknownNameError: if no implementation of the graph has such a name, or is of such a kind.
        SolverError: if it is a kind that the graph was captured without.

    >>> from remat_explorer.instances import linear
    >>> allowed_codes(linear(1), "exact")
    [[1], [1], [1]]
    """
    if isinstance(implementations, str) and implementations in ("all", "exact"):
        chosen = frozenset()
    else:
        chosen = _named(graph, implementations)

    def allows(way: Implementation) -> bool:
        if implementations == "all":
            return True
        if implementations == "exact":
            return way.tolerance == 0
        return way.name in chosen or (way.kinds != () and chosen.issuperset(way.kinds))

    return [
        [
            code
            for code, way in enumerate(node.implementations, 1)
            if allows(way) or way is node.default or (node.optional and implementations != "exact")
        ]
        for node in graph.operations
    ]


def _named(graph: Graph, implementations: str | Collection[str]) -> frozenset[str]:
    """Names and kinds, once it is known that the graph has them.

    A kind that was captured is known even where no operation has an implementation of it; but graphs that were captured
    before implementations had kinds have none, whatever their options say.
    """
    if not isinstance(implementations, str) and not (
        isinstance(implementations, Collection) and all(isinstance(name, str) for name in implementations)
    ):
        raise SolverError(
            f'implementations is {shown(implementations)}; give "all", "exact", or names or kinds of implementations'
        )
    told = graph.options is not None and (graph.kinds or not graph.has_choices)
    captured = graph.options.implementations if graph.options is not None and told else ()
    names = {way.name for node in graph.operations for way in node.implementations}
    available = {*names, *graph.kinds, *captured}
    if isinstance(implementations, str):
        whole = implementations in available  # names may have commas of their own
        implementations = [implementations] if whole else [part.strip() for part in implementations.split(",")]
    chosen = frozenset(implementations)
    for name in sorted(chosen):
        if name in KINDS and name not in available:
            raise SolverError(
                f"graph {graph.name!r} has no implementations of the kind {name!r}; "
                f"capture the model with implementations=[{name!r}], or with 'all'"
            )
        if name not in available:
            raise UnknownNameError("implementation", name, sorted(available | {"all", "exact"}))
    return chosen


def possible_codes(graph: Graph, codes: Codes | None) -> list[list[int]]:
    """The codes without implementations that read what nothing writes, and without what serves nothing.

    One that may run in place only is left out, too, where nothing that may be chosen stands in for it.
    """
    ways = [node.implementations for node in graph.operations]
    kept = [sorted(codes[k]) if codes is not None else list(range(1, len(ways[k]) + 1)) for k in range(graph.n)]
    for k, chosen in enumerate(kept):
        others = [ways[k][code - 1] for code in chosen]
        kept[k] = [
            code
            for code, way in zip(chosen, others, strict=True)
            if not way.in_place or any(stands_in(other, way) for other in others)
        ]
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
