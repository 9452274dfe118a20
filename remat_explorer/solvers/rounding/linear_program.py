"""The linear program of problem (9), solved in time, with the fractional R* and S* that rounding begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.checkmate_problem import CheckmateProblem
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.milp import Milp


@dataclass(frozen=True, eq=False)
class FractionalSchedule:
    """What is known of the linear program of one budget.

    Attributes:
        condensed: n operations and g groups of values.
        budget: bytes of the linear program, resident bytes included.
        status: "solved", "infeasible" (proven), or "unknown" where the time was too short.
        bound: optimum of the linear program, in the unit of the graph's costs: no frontier-advancing schedule within
            ``budget`` costs less. Infinity where it is infeasible, the cost of computing everything once where it is
            unknown.
        R: to what degree each stage computes each operation, float of shape (n, n); 0 unless solved.
        S: to what degree each group is retained into each stage, float of shape (n, g); 0 unless solved.
    """

    condensed: Condensed
    budget: int
    status: Literal["solved", "infeasible", "unknown"]
    bound: float
    R: np.ndarray
    S: np.ndarray

    @property
    def graph(self) -> Graph:
        """The training graph."""
        return self.condensed.graph

    @property
    def failure(self) -> str:
        """Why there is nothing to round, in words; "" where there is."""
        if self.status == "infeasible":
            return "the linear program of problem (9) has no solution within its reduced budget"
        return "" if self.status == "solved" else "the time is too short for the linear program of problem (9)"


def solve_linear_program(condensed: Condensed, budget: int, limits: Limits) -> FractionalSchedule:
    """Solve problem (9) without integrality, as far as the limits allow.

    The program has about 2 n^2 columns: a few hundred operations take minutes.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        limits: time, back end, and whom to tell.

    Source: Jain et al., Checkmate (MLSys 2020), problem (9) and section 5.1.

    >>> from remat_explorer.instances import linear
    >>> relaxed = solve_linear_program(Condensed.of(linear(8)), 4, Limits())
    >>> relaxed.status, round(relaxed.bound, 3), relaxed.S.shape
    ('solved', 22.0, (17, 16))
    """
    n, total = condensed.n, condensed.graph.total_cost
    nothing = np.zeros((n, n)), np.zeros((n, condensed.groups))
    problem = CheckmateProblem(condensed, budget, Milp(limits.solver, limits.threads, relaxed=True))
    limits.tell("building the linear program of problem (9)", lower_bound=total)
    if not problem.build(limits):
        return FractionalSchedule(condensed, budget, "unknown", total, *nothing)
    limits.tell("solving the linear program of problem (9)", lower_bound=total)
    outcome = problem.milp.solve(limits.left, cancelled=limits.cancelled)
    if outcome.status == "infeasible":
        return FractionalSchedule(condensed, budget, "infeasible", np.inf, *nothing)
    if outcome.values is None:
        return FractionalSchedule(condensed, budget, "unknown", total, *nothing)
    R, S = problem.matrices(outcome.values)
    bound = max(total, outcome.bound / problem.cost_scale)
    return FractionalSchedule(condensed, budget, "solved", bound, R.clip(0, 1), S.clip(0, 1))


def reduced_budget(graph: Graph, budget: int, epsilon: float) -> int:
    """The budget of the linear program: less by the share epsilon of what is not resident anyway.

    The paper's allowance (section 5.3), (1 - epsilon) M_budget, leaves room for what rounding adds. Parameters and
    inputs are no part of it: no schedule moves them, and a tenth of them is often more than all that a schedule decides
    about. The program that the paper's authors published leaves them out of the budget, too.

    Args:
        graph: the training graph.
        budget: bytes, resident bytes included.
        epsilon: share from 0 to less than 1.

    >>> from remat_explorer.instances import linear
    >>> reduced_budget(linear(8), 40, 0.1)
    36
    """
    room = budget - graph.resident_bytes
    return graph.resident_bytes + int((1 - epsilon) * room + 1e-9 * abs(room))
