"""Which implementations may be chosen: "none", "exact", "all", or kinds, and what that means for a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remat_explorer.capture_options import KINDS, kinds_of
from remat_explorer.errors import UnknownNameError
from remat_explorer.explanations.choices import is_exact, kinds_in
from remat_explorer.graph import Graph

NONE, EXACT, ALL = "none", "exact", "all"
NAMED = (NONE, EXACT, ALL)
Implementations = str | tuple[str, ...]


def read_implementations(given: str | Iterable[str] | None, graph: Graph | None = None) -> Implementations:
    """A choice of implementations as the state keeps it.

    Args:
        given: "none" or None, "exact", "all", a kind, or kinds.
        graph: whose own kinds may be named, besides those that can be captured.

    Raises:
        UnknownNameError: if there is no such kind.

    >>> read_implementations(["pooling", "masks"]), read_implementations(None), read_implementations("exact")
    (('masks', 'pooling'), 'none', 'exact')
    """
    if given is None or (isinstance(given, str) and given in NAMED):
        return given or NONE
    chosen = {given} if isinstance(given, str) else set(given)
    kinds = tuple(dict.fromkeys([*KINDS, *(kinds_in(graph) if graph is not None else ())]))
    for kind in sorted(map(str, chosen)):
        if kind not in kinds:
            raise UnknownNameError("kind of implementations", kind, [*kinds, *NAMED])
    return tuple(kind for kind in kinds if kind in chosen)


def allowed_kinds(graph: Graph | None, implementations: Implementations) -> tuple[str, ...]:
    """The kinds of a graph's implementations that may be chosen.

    >>> from remat_explorer.instances import linear
    >>> allowed_kinds(linear(3), "all")
    ()
    """
    if graph is None or not graph.has_choices or implementations == NONE:
        return ()
    there = kinds_in(graph)
    if implementations == ALL:
        return there
    if implementations == EXACT:
        return tuple(kind for kind in there if is_exact(graph, kind))
    return tuple(kind for kind in there if kind in implementations)


def kinds_to_capture(implementations: Implementations) -> tuple[str, ...]:
    """The kinds that a model is captured with, so that others can be tried without capturing it again.

    Whoever chooses kinds is likely to try others: all of them are captured, the exact ones where only these are chosen.

    >>> kinds_to_capture("none"), kinds_to_capture(("masks",)) == kinds_to_capture("exact")
    ((), True)
    """
    if implementations == NONE:
        return ()
    if isinstance(implementations, str):
        return kinds_of(implementations)
    exact = kinds_of(EXACT)
    return exact if set(implementations) <= set(exact) else kinds_of(ALL)


def needs_capture(graph: Graph, implementations: Implementations) -> bool:
    """Whether a captured graph has to be captured anew for other kinds, or for none."""
    captured = graph.options.implementations if graph.options is not None else ()
    if implementations == NONE:
        return bool(captured)
    wanted = kinds_of(implementations)
    return not captured or not set(wanted) <= set(captured)


def option_of(graph: Graph, kinds: Iterable[str]) -> Any:
    """What the strategy "monet" takes as ``implementations`` for these kinds of a graph's implementations.

    >>> from remat_explorer.instances import linear
    >>> option_of(linear(3), ())
    'all'
    """
    chosen = tuple(kinds)
    return ALL if set(chosen) == set(kinds_in(graph)) else sorted(chosen)


def describe_kinds(graph: Graph, kinds: Iterable[str]) -> str:
    """A set of kinds in words.

    >>> from remat_explorer.instances import linear
    >>> describe_kinds(linear(3), ())
    'default implementations'
    """
    chosen = tuple(kinds)
    if not chosen:
        return "default implementations"
    if set(chosen) == set(kinds_in(graph)):
        return "all kinds of implementations"
    return f"implementations of {', '.join(chosen)}"
