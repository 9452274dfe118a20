"""Which repeated blocks are folded: one copy's rows, columns and nodes stand for those of all."""

from __future__ import annotations

from typing import Any

import numpy as np
import traitlets as t

from remat_explorer.graph import Graph
from remat_explorer.graph.repeated_blocks import RepeatedBlocks, repeated_blocks

MANY = 400  # operations from which on repeated blocks are folded at first


class Folding(t.HasTraits):
    """What is folded, as traits; the graph is that of `State`.

    >>> import remat_explorer as rx
    >>> from remat_explorer.explorer.state.state import State
    >>> state = State(graph=rx.linear(8))
    >>> state.blocks[0].copies, state.folded
    (7, ())
    >>> state.fold()
    >>> state.folded, state.operation_shown(5)
    ((0,), 1)
    >>> state.unfold(0)
    >>> state.folded, state.operation_shown(5)
    ((), 5)
    """

    folded: Any = t.Tuple(default_value=(), help="Numbers of the repeated blocks of which one copy stands for all.")

    @property
    def blocks(self) -> tuple[RepeatedBlocks, ...]:
        """The blocks that the graph repeats, in the order of the forward pass."""
        graph: Graph | None = getattr(self, "graph", None)
        return () if graph is None else repeated_blocks(graph)

    def fold(self, *numbers: int) -> None:
        """Fold some of `blocks`, or all of them."""
        self.folded = tuple(sorted({*self.folded, *(numbers or range(len(self.blocks)))}))

    def unfold(self, *numbers: int) -> None:
        """Unfold some of `blocks`, or all of them."""
        self.folded = tuple(number for number in self.folded if numbers and number not in numbers)

    def operation_shown(self, k: int) -> int:
        """The operation that stands for ``k``: itself, unless it is folded away."""
        for number in self.folded:
            place = np.argwhere(self.blocks[number].operations == k)
            if len(place):
                return int(self.blocks[number].operations[0, place[0, 1]])
        return k

    def stage_shown(self, stage: int) -> int:
        """The stage that stands for one of a frontier-advancing schedule."""
        own = self.graph.mandatory if self.folded else ()  # pyright: ignore[reportAttributeAccessIssue]
        if not 0 <= stage < len(own):
            return stage
        return int(np.searchsorted(own, self.operation_shown(int(own[stage]))))

    @t.observe("graph")
    def _fold_at_first(self, change: Any) -> None:
        graph = change["new"]
        many = graph is not None and graph.n >= MANY
        self.folded = tuple(range(len(self.blocks))) if many else ()

    @t.validate("folded")
    def _blocks_known(self, proposal: Any) -> tuple[int, ...]:
        wanted, known = tuple(proposal["value"]), len(self.blocks)
        if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < known for i in wanted):
            there = f"numbers from 0 to {known - 1}" if known else "none, as this graph repeats no block"
            raise t.TraitError(f"{wanted!r} are no repeated blocks; there are {there}")
        return tuple(sorted(set(wanted)))
