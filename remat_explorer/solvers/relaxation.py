"""Linear programming bounds of the formulations, to compare how tight they are."""

from __future__ import annotations

import math
from collections.abc import Callable

from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.quantities import parse_budget
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.checkmate_ilp import CheckmateProblem
from remat_explorer.solvers.checkpoint_all import checkpoint_all_peak
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.lazy_rows import LivenessRelaxation
from remat_explorer.solvers.milp import Milp


def relax(graph: Graph, budget: str | int | float, formulation: str = "checkmate-ilp", solver: str = "highs") -> float:
    """The bound of a formulation without integrality: no schedule within the budget costs less.

    Args:
        graph: the training graph.
        budget: as for `solve`.
        formulation: "checkmate-ilp" (problem (9)), "checkmate-unpartitioned" (without stages, (8a) to (8c)) or
            "optimal" (the liveness formulation).
        solver: the back end.

    Returns:
        The optimum of the linear program, in the unit of the graph's costs; infinity if it has no solution.

    Raises:
        UnknownNameError: if there is no such formulation or solver.

    Source: Checkmate (MLSys 2020), section 4.6 and appendix A.

    >>> from remat_explorer.instances import linear
    >>> round(relax(linear(8), 4), 3), round(relax(linear(8), 4, "checkmate-unpartitioned"), 3)
    (22.0, 1.206)
    """
    if formulation not in FORMULATIONS:
        raise UnknownNameError("formulation", formulation, FORMULATIONS)
    budget_bytes = parse_budget(budget, checkpoint_all_peak(graph))
    return FORMULATIONS[formulation](Condensed.of(graph), budget_bytes, solver)


def _checkmate(condensed: Condensed, budget: int, solver: str, unpartitioned: bool = False) -> float:
    problem = CheckmateProblem(condensed, budget, Milp(solver, relaxed=True), unpartitioned)
    problem.build(Limits(time_limit=math.inf))
    outcome = problem.milp.solve()
    if outcome.status == "unknown":
        raise SolverError(f"{solver!r} gave no bound for this linear program; try the other solver")
    return outcome.bound / problem.cost_scale


def _unpartitioned(condensed: Condensed, budget: int, solver: str) -> float:
    return _checkmate(condensed, budget, solver, unpartitioned=True)


def _liveness(condensed: Condensed, budget: int, solver: str) -> float:
    relaxation = LivenessRelaxation(condensed, budget, Limits(time_limit=math.inf, solver=solver))
    relaxation.build()
    return relaxation.solve().bound


FORMULATIONS: dict[str, Callable[[Condensed, int, str], float]] = {
    "checkmate-ilp": _checkmate,
    "checkmate-unpartitioned": _unpartitioned,
    "optimal": _liveness,
}
