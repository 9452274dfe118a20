"""One choice of implementations: the plain graph that it leaves, and the schedules of the joint problem found on it."""

from __future__ import annotations

from collections.abc import Mapping

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.monet.codes import Codes
from remat_explorer.solvers.monet.selections import Selection, consistent, restricted_to


class CandidateSelection:
    """A selection that may hold a good schedule within the budget.

    Args:
        selection: one implementation per operation.
        budget: bytes, resident bytes included.
        codes: the implementations of each operation that may be chosen; all if None.

    Attributes:
        condensed: its plain graph.
        plain: the cheapest schedule of the plain graph that is known, or None.
        best: the cheapest of the joint problem within the budget, lifted from the plain graph, or None.
        bound: no schedule of the plain graph costs less; infinity where it has none.
        searches: how often a search went on with it.
        finished: whether a search of the plain graph has come to its end.
    """

    def __init__(self, selection: Selection, budget: int, codes: Codes | None = None) -> None:
        self.selection, self.budget, self.codes = selection, budget, codes
        self.condensed = Condensed.of(selection.graph)
        self.plain: Schedule | None = None
        self.best: Schedule | None = None
        self.bound, self.searches, self.finished = 0.0, 0, False

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What tells it from others: its operations and their implementations."""
        return self.selection.operations, self.selection.codes

    @staticmethod
    def of(
        graph: Graph, choice: Mapping[int, int], budget: int, codes: Codes | None = None
    ) -> CandidateSelection | None:
        """The candidate of a choice, made consistent; None if no schedule of it can fit into the budget."""
        try:
            candidate = CandidateSelection(restricted_to(graph, consistent(graph, choice)), budget, codes)
        except SolverError:  # what one operation must write and another must not
            return None
        return candidate if int(candidate.condensed.operation_bytes.max()) <= budget else None

    def keeps_to(self, codes: Codes | None) -> bool:
        """Whether it runs only implementations that may be chosen."""
        chosen = zip(self.selection.operations, self.selection.codes, strict=True)
        return codes is None or all(code in codes[k] for k, code in chosen)

    def take(self, plain: Schedule | None) -> Schedule | None:
        """Take in a schedule of the plain graph, and return what it gives on the graph with choices, if it fits."""
        if plain is None or plain is self.plain:
            return None
        if self.plain is None or plain.cost < self.plain.cost:
            self.plain = plain
        lifted = self.selection.lift(plain, self.codes)
        if (self.best is not None and lifted.cost >= self.best.cost) or Plan.of(lifted).peak > self.budget:
            return None
        self.best = lifted
        return lifted
