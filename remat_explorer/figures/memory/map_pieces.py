"""What a memory map shows: every rectangle of a plan, in the parts in which it holds one value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from remat_explorer.figures.palette import Palette
from remat_explorer.offsets import Rectangles
from remat_explorer.plan import Compute, Plan

KINDS = ("resident", "kept", "temporaries", "gradients", "recomputed")


@dataclass(frozen=True)
class Piece:
    """A rectangle, or the part of it in which it holds one value.

    Attributes:
        rectangle: its index.
        begin, end: statements, half-open.
        value: the value; -1 for resident bytes and workspace.
        kind: an entry of `KINDS`: those of the memory timeline, and values that were in memory before.
    """

    rectangle: int
    begin: int
    end: int
    value: int
    kind: str


def pieces_of(plan: Plan, rectangles: Rectangles) -> Iterator[Piece]:
    """The pieces of a plan's rectangles, in their order.

    >>> from remat_explorer.instances import linear
    >>> plan = Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)])
    >>> [(piece.begin, piece.end, piece.value, piece.kind) for piece in pieces_of(plan, Rectangles.of(plan))]
    [(0, 3, 0, 'kept'), (1, 4, 1, 'gradients'), (2, 5, 2, 'gradients')]
    """
    for r, (values, since) in enumerate(zip(rectangles.values, rectangles.since, strict=True)):
        begin, end = int(rectangles.begin[r]), int(rectangles.end[r])
        if not values:
            resident = r == 0 and plan.graph.resident_bytes > 0
            yield Piece(r, begin, end, -1, "resident" if resident else "temporaries")
        for v, first, last in zip(values, since, (*since, end)[1:], strict=True):
            yield Piece(r, first, last, v, _kind(plan, first, last))


def colour_of(kind: str, palette: Palette) -> str:
    """The colour of a kind, as ``#rrggbb``."""
    return getattr(palette, "recompute" if kind == "recomputed" else kind)


def _kind(plan: Plan, begin: int, end: int) -> str:
    """The kind of a value that one statement computes and another ends."""
    statement = plan.statements[begin]
    if isinstance(statement, Compute):
        if not statement.first:
            return "recomputed"
        if plan.graph.operations[statement.operation].phase == "backward":
            return "gradients"
    later = end >= len(plan.statements) or plan.statements[end].stage > statement.stage
    return "kept" if later else "temporaries"
