"""How little memory the joint problem can do with: the relaxation with choices, memory as the objective.

The relaxation of `choice_moments` asks for the least cost within a budget; here it asks, for a limit on the cost, for
the least memory z. With s, x and d and the rows between moments as there, and for each moment t

    sum over v of M_v s[t,v] + sum over l of (outputs + transient - overwritten) d[t,l] + base_t <= z,
    sum of C d + sum of C x <= limit,

minimize z. Every schedule whose cost keeps to the limit, with whatever implementations, has a peak of at least that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.linear_expression import LinearExpression, require
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.monet.choice_moments import ChoiceMoments
from remat_explorer.solvers.monet.condensed_choices import Tables
from remat_explorer.solvers.monet.relaxation_with_choices import (
    INTEGRAL_GAP,
    ChoiceBound,
    RelaxationWithChoices,
    first_moments,
)

FIRST_BUDGET = 0.4  # of what keeping everything takes: first moments are where memory is short of that
TOLERANCE = 1e-6  # relative, of a back end: a bound is lowered by that


class LeastMemoryMoments(ChoiceMoments):
    """The relaxation for chosen moments; column ``z`` is the memory, in units, and the objective.

    Args:
        tables: of the problem.
        most_cost: limit on the cost, in the graph's unit.
        moments: mandatory operations, ascending.
        milp: an empty problem to build into.
        most: bytes; larger memory is of no interest.
    """

    def __init__(
        self, tables: Tables, most_cost: float, moments: list[int], milp: Milp, most: float = math.inf
    ) -> None:
        least = int(tables.problem.least_memory.max())
        super().__init__(tables, least, moments, milp)
        self.most_cost = most_cost
        self.prices: list[tuple[int, float]] = []
        self.z = milp.column(cost=1.0, lower=least / self.unit, upper=max(least, most) / self.unit)

    def build(self, limits: Limits) -> bool:
        """Add everything; False if the time ran out before the end."""
        if not super().build(limits):
            return False
        columns, costs = [column for column, _ in self.prices], [cost for _, cost in self.prices]
        self.milp.row(columns, costs, "<", (self.most_cost - self.constant) * self.cost_scale)
        return True

    def memory(self, objective: float) -> float:
        """The bytes that a value of the objective stands for."""
        return objective * self.unit

    def _column(self, cost: float = 0.0, integer: bool = False) -> int:
        column = self.milp.column(integer=integer)
        if cost:
            self.prices.append((column, cost * self.cost_scale))
        return column

    def _limit(self, held: LinearExpression, room: float) -> None:
        """What is held is at most z, where ``room`` is counted from a budget of its own."""
        parts = [(1.0, held), (-1.0, LinearExpression.of(self.z))]
        require(self.milp, parts, "<", room - self.budget / self.unit)


class LeastMemory(RelaxationWithChoices):
    """Rounds of the relaxation for one limit on the cost; its bounds are bytes.

    Args:
        tables: of the problem.
        most_cost: limit on the cost, in the graph's unit.
        keep_everything: bytes of keeping everything.
        moments: to begin with; empty for where memory is short.

    Attributes:
        most: bytes of the best schedule that is known: only less memory is of interest. An infinite bound says that no
            schedule does with less.
    """

    def __init__(
        self,
        tables: Tables,
        most_cost: float,
        keep_everything: int,
        moments: Sequence[int] = (),
    ) -> None:
        least = int(tables.problem.least_memory.max())
        self.tables, self.budget, self.most_cost = tables, least, most_cost
        self.most = float(keep_everything)
        short = max(least, int(FIRST_BUDGET * keep_everything))
        self.moments = moments or first_moments(tables, short)
        self.best = ChoiceBound(float(least))

    def _problem(self, milp: Milp) -> LeastMemoryMoments:
        return LeastMemoryMoments(self.tables, self.most_cost, list(self.moments), milp, self.most)

    def _gap(self, problem: ChoiceMoments) -> float:
        return INTEGRAL_GAP * self.best.bound / problem.unit

    def _bound(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        return max(float(self.budget), outcome.bound * problem.unit * (1 - TOLERANCE))

    def _memory(self, problem: ChoiceMoments, outcome: MilpOutcome) -> float:
        assert outcome.objective is not None
        return outcome.objective * problem.unit
