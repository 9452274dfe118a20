"""Linear programming relaxations of the formulations, to compare how tight they are and to see what they mix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remat_explorer.entry_checks import Count, require_arguments
from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.solvers.bounds.lazy_rows import LivenessRelaxation
from remat_explorer.solvers.checkmate_problem import CheckmateProblem, StageRows
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.memory.minimum_budget import budget_of
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Limits


def relax(
    graph: Graph,
    budget: str | int | float,
    formulation: str = "checkmate-ilp",
    solver: str = "highs",
    splits: Count = 1,
) -> float:
    """The bound of a formulation without integrality: no schedule of its class within the budget costs less.

    Args:
        graph: the training graph.
        budget: as for `solve`.
        formulation: "checkmate-ilp" (problem (9)), "checkmate-unpartitioned" (without stages, (8a) to (8c)) or
            "optimal" (the liveness formulation, whose schedules are those of problem (9)).
        solver: the back end.
        splits: parts of each stage, for "checkmate-ilp".

    Returns:
        The optimum of the linear program, in the unit of the graph's costs; infinity if it has no solution. With
        splits, and without stages, there are more schedules, so those bounds hold for frontier-advancing ones, too.

    Raises:
        UnknownNameError: if there is no such formulation or solver.
        SolverError: if the formulation has no stages to split, or the back end fails.

    Source: Checkmate (MLSys 2020), section 4.6 and appendix A.

    >>> from remat_explorer.instances import linear
    >>> round(relax(linear(8), 4), 3), round(relax(linear(8), 4, "checkmate-unpartitioned"), 3)
    (22.0, 1.206)
    """
    require_arguments(relax, locals())
    return Relaxation.of(graph, budget, formulation, solver, splits).bound


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A formulation's linear program, solved: its bound and the fractional matrices that attain it.

    Attributes:
        graph: the training graph, n operations and v values.
        bound: as `relax` returns it.
        R: to what degree each row computes each operation, float of shape (rows, n); None if there is no solution.
        S: to what degree each value is retained into each row, float of shape (rows, v); None if there is no solution.
    """

    graph: Graph
    bound: float
    R: np.ndarray | None
    S: np.ndarray | None

    @staticmethod
    def of(
        graph: Graph,
        budget: str | int | float,
        formulation: str = "checkmate-ilp",
        solver: str = "highs",
        splits: Count = 1,
    ) -> Relaxation:
        """Solve the linear program; arguments and errors are those of `relax`.

        >>> from remat_explorer.instances import linear
        >>> half = Relaxation.of(linear(2), 3, "checkmate-unpartitioned")
        >>> half.R.shape, bool(half.R.sum() < 5)
        ((5, 5), True)
        """
        require_arguments(Relaxation.of, locals())
        if formulation not in FORMULATIONS:
            raise UnknownNameError("formulation", formulation, FORMULATIONS)
        solve, partitioned, may_split = FORMULATIONS[formulation]
        rows = StageRows(graph.n, splits, partitioned)
        if splits > 1 and not may_split:
            raise SolverError(
                f"the formulation {formulation!r} does not split stages; splits={splits} goes with 'checkmate-ilp'"
            )
        return solve(CondensedGraph.of(graph), budget_of(graph, budget), solver, rows)


def _checkmate(condensed: CondensedGraph, budget: int, solver: str, rows: StageRows) -> Relaxation:
    problem = CheckmateProblem(condensed, budget, Milp(solver, relaxed=True), rows)
    problem.build(Limits(time_limit=math.inf))
    outcome = problem.milp.solve()
    if outcome.status == "unknown":
        raise SolverError(f"{solver!r} gave no bound for this linear program; try the other solver")
    if outcome.values is None:
        return Relaxation(condensed.graph, math.inf, None, None)
    R, S = problem.matrices(outcome.values)
    if rows.partitioned:
        stays = np.arange(rows.count)[:, None] // rows.splits > condensed.graph.producer
    else:
        stays = np.append(outcome.values, 0.0)[problem.D][:, condensed.graph.producer]
    return Relaxation(condensed.graph, outcome.bound / problem.cost_scale, R, condensed.spread(S, stays))


def _liveness(condensed: CondensedGraph, budget: int, solver: str, rows: StageRows) -> Relaxation:
    relaxation = LivenessRelaxation(condensed, budget, Limits(time_limit=math.inf, solver=solver))
    relaxation.build()
    relaxed = relaxation.solve()
    if relaxed.R is None or relaxed.S is None:
        return Relaxation(condensed.graph, relaxed.bound, None, None)
    stays = np.arange(condensed.n)[:, None] > condensed.graph.producer
    return Relaxation(condensed.graph, relaxed.bound, relaxed.R, condensed.spread(relaxed.S, stays))


FORMULATIONS = {  # what solves it, whether it has stages, and whether they may be split
    "checkmate-ilp": (_checkmate, True, True),
    "checkmate-unpartitioned": (_checkmate, False, False),
    "optimal": (_liveness, True, False),
}
