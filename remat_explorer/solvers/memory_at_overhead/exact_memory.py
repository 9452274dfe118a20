"""Whether a budget is enough for a limited cost, by the joint integer program: for small problems."""

from __future__ import annotations

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.memory_at_overhead.memory_descent import LOOSE
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.joint_problem import JointProblem

CAUTION = 1e-7  # relative excess of a bound over the limit on the cost that proves nothing


def decide_exactly(
    problem: CondensedChoices, budget: int, most_cost: float, limits: Limits
) -> tuple[Schedule | None, bool]:
    """A schedule within the budget and the limit on the cost, or None, and then whether it is proven that none is.

    Args:
        problem: with choices.
        budget: bytes, resident bytes included.
        most_cost: limit on the cost, in the graph's unit.
        limits: time and back end.
    """
    joint = JointProblem(problem, budget, Milp(limits.solver, 1, relaxed=True))
    if not joint.build(limits):
        return None, False
    schedule, bound = joint.solve(limits, None)
    if schedule is not None and schedule.cost <= most_cost * (1 + LOOSE):
        return schedule, False
    return None, bound > most_cost * (1 + CAUTION)
