"""Choices of implementations changed many at once, and judged by walks.

Operations with the same implementations, such as all gradients of batch norms, are a family. A change gives one
implementation to a run of neighbours in a family, from a single one to all of them; it is kept if the cheapest of a
few walks within the budget costs less afterwards, which takes some milliseconds. Changes of single operations alone
lead nowhere: what one reads, its neighbours must keep or make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.schedule.runs import Computations
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.monet.codes import Codes
from remat_explorer.solvers.monet.selections import Selection, consistent, restricted_to
from remat_explorer.solvers.monet.tables import Tables
from remat_explorer.solvers.search.guide import Guide
from remat_explorer.solvers.search.walks import Walks

EXPONENTS = ((1, 1, 1), (0.5, 1, 1), (1, 1, 0), (1, 1, 0.5))  # of the walks that judge a choice


class ChoiceSearch:
    """A choice, and changes of it.

    Args:
        tables: of the problem.
        choice: numbers, from 1, of implementations by operation.
        seed: of all random choices.
        codes: the implementations of each operation that may be chosen, defaults among them; all if None.

    Attributes:
        choice: the best one.
        selection: the graph that it leaves, or None if there is none.
        R: of the cheapest walk with it, or None.
        cost: of that walk, in the graph's unit; infinity where none came to its end.
        judged: how many choices were judged so far.
    """

    def __init__(self, tables: Tables, choice: Mapping[int, int], seed: int = 0, codes: Codes | None = None) -> None:
        self.codes = codes
        self.graph: Graph = tables.problem.graph
        self.choice = dict(choice)
        self.selection: Selection | None = None
        self.computations: Computations | None = None
        self.cost, self.budget, self.judged = math.inf, 0, 0
        self._draw = np.random.default_rng(seed)
        families: dict[tuple[str, ...], list[int]] = {}
        self._allowed: dict[int, set[int]] = {}
        for k, node in enumerate(self.graph.operations):
            allowed = {way.code for way in (tables.first[k] if tables.mandatory[k] else tables.again[k])}
            if len(allowed) > 1:
                self._allowed[k] = allowed
                families.setdefault(tuple(way.name for way in node.implementations), []).append(k)
        self._families = list(families.values())

    def schedule(self) -> Schedule | None:
        """The cheapest walk's schedule on the graph of the choice."""
        if self.selection is None or self.computations is None:
            return None
        return Condensed.of(self.selection.graph).schedule(self.computations)

    def lower(self, budget: int) -> None:
        """Judge the choice at a budget."""
        self.budget, self.cost, self.computations = budget, math.inf, None
        self._judge(self.choice)

    def improve(self, changes: int, enough: float, over: Callable[[], bool] = lambda: False) -> None:
        """Up to so many changes at the budget, until a walk costs no more than is enough."""
        for _ in range(changes if self._families else 0):
            if over() or self.cost <= enough:
                break
            members = self._families[int(self._draw.integers(len(self._families)))]
            length = max(1, round(len(members) ** self._draw.uniform()))
            first = int(self._draw.integers(len(members) - length + 1))
            code = int(self._draw.choice(sorted(set().union(*(self._allowed[k] for k in members)))))
            changed = {k: code for k in members[first : first + length] if code in self._allowed[k]}
            if any(self.choice.get(k, 1) != code for k in changed):
                self._judge(self.choice | changed)

    def _judge(self, choice: Mapping[int, int]) -> None:
        """Keep a choice if the cheapest walk with it costs less than with the one before."""
        self.judged += 1
        try:
            selection = restricted_to(self.graph, consistent(self.graph, choice, self.codes))
        except SolverError:  # what one operation must write and another must not
            return
        condensed = Condensed.of(selection.graph)
        total = selection.graph.total_cost
        if total >= self.cost or condensed.operation_bytes.max() > self.budget:
            return
        walks = Walks(condensed, self.budget)
        unguided = Guide.everywhere(np.zeros(condensed.groups), condensed.n)
        for powers in EXPONENTS:
            walked = walks.walk(powers, unguided, most_cost=self.cost - total)
            cost = float(walked.computations.counts(condensed.n) @ condensed.costs)
            if walked.complete and cost < self.cost:
                self.choice, self.selection, self.cost = dict(choice), selection, cost
                self.computations = walked.computations
