"""Checkmate's problem without stages: n rows that compute any operations, (1a) to (1f) without (8a) to (8c).

Section 4.6 and appendix A of Jain et al., Checkmate (MLSys 2020), use it to show why stages matter. `checkmate_ilp`
says how its schedules relate to those that go stage by stage.
"""

from __future__ import annotations

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.solvers.base import Answer, Limits
from remat_explorer.solvers.budgets import smallest_budget_without_stages
from remat_explorer.solvers.checkmate_problem import StageRows
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.strategies.checkmate_ilp import solve_rows

# Operations. Chains, with a minute of HiGHS: 9 operations are proven optimal; with 17 the optimum is found, but not
# proven; with 25 a schedule is found that costs 8 % more than the best known; with 33 none is.
LARGEST_UNPARTITIONED = 25


def solve_checkmate_unpartitioned(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Solve the unpartitioned problem with n rows, the paper's number of stages.

    Its bound and its optimum are those of all schedules with n rows, so the optimum may be below that of
    frontier-advancing schedules.

    Raises:
        SolverError: as `solve_checkmate_ilp`, or if the graph is too large for this form.
    """
    if graph.n > LARGEST_UNPARTITIONED:
        raise SolverError(
            f"graph {graph.name!r} has {graph.n} operations; 'checkmate-unpartitioned' shows on graphs of at most "
            f"{LARGEST_UNPARTITIONED} why stages matter, and finds no schedule in time on larger ones: use 'optimal', "
            "or 'checkmate-ilp' for the paper's problem with stages; its linear programming bound without stages is "
            "relax(graph, budget, 'checkmate-unpartitioned')"
        )
    return solve_rows(graph, budget, limits, StageRows(graph.n, partitioned=False), "the unpartitioned problem")


METHOD = Method(
    solve_checkmate_unpartitioned,
    "the paper's form without stages, for small graphs; it shows why stages matter",
    "Jain et al. 2020, sections 4.2 to 4.5",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    stages=False,
    smallest_budget=smallest_budget_without_stages,
    symbol="star",
)
