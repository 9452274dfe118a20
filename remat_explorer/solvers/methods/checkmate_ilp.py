"""Checkmate's integer linear programs, solved as the paper writes them: no start, no heuristic.

Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020. Three classes of
schedules, each with an optimum of its own:

* frontier-advancing: stage t computes operations 0 to t, each at most once, and is the first to compute t; problem (9);
* stages split into k: an operation runs up to k times in a stage;
* unpartitioned: n rows, each of which computes any operations, (1a) to (1f) without (8a) to (8c); section 4.6 and
  appendix A use it to show why stages matter.

Every frontier-advancing schedule is one of the other two, too, but not the other way round. So a bound proven for a
larger class holds for frontier-advancing schedules, while their bound says nothing about a larger class.

Does splitting a stage help? A stage runs its operations in ascending order, each once. Two parts lift either limit:

* Order. Where an output takes over the storage of an input, it pays to have its other inputs computed last. In the
  order in which PyTorch traces it, a perceptron with two hidden tanh layers (15 operations) fits into whole stages only
  at 100 % of what keeping everything takes, and with two parts at 77 %; with GELU 69 % and 53 %. Captured graphs have
  another order, in which whole stages fit into 77 and 53 %, too (`remat_explorer.capture.operation_rewrites`):
  on 130 small captured perceptrons and convolutional networks two parts gained nothing.
* Repetition. Take two values that come from one large source and are computed again in one stage, after an operation
  that left no room to keep either. If what leads to the first fits only without the source, the source must run a
  second time in that stage, for the other value.

The tests have a small graph of each kind. More than two parts gained nothing wherever it was tried. Of 3,900 random
training graphs of 5 to 9 operations, at random budgets, 2 had a lower optimum with more parts. All this by exhaustive
search.
"""

from __future__ import annotations

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes
from remat_explorer.solvers.checkmate_problem import CheckmateProblem, StageRows
from remat_explorer.solvers.condensed_graph import CondensedGraph, smallest_budget_without_stages
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.solver_interface import Answer, Limits


def solve_checkmate_ilp(graph: Graph, budget: int, limits: Limits, splits: int = 1) -> Answer:
    """Solve problem (9), or its form with every stage split into ``splits`` parts (arXiv 1910.02653v1, section 4.10).

    An operation may run ``splits`` times in a stage; the schedule has as many rows for each stage.
    """
    return _solve_rows(graph, budget, limits, StageRows(graph.n, splits), "problem (9)")


def _solve_rows(graph: Graph, budget: int, limits: Limits, rows: StageRows, name: str) -> Answer:
    """Solve the program with these rows of R, and again with a little less where a solution exceeds the budget."""
    condensed = CondensedGraph.of(graph)
    room, lower_bound = budget, graph.total_cost  # every operation leads to one that must run
    while True:
        problem = CheckmateProblem(condensed, room, Milp(limits.solver, limits.threads), rows)
        limits.tell(f"building {name}", lower_bound=lower_bound)
        if not problem.build(limits):
            return Answer(None, lower_bound, solver=limits.solver)
        limits.tell(f"solving {name}", lower_bound=lower_bound)
        outcome = problem.milp.solve(limits.left, cancelled=limits.cancelled)
        if room == budget:  # a narrower budget proves nothing about this one
            if outcome.status == "infeasible":
                return Answer(None, infeasible=True, solver=limits.solver)
            lower_bound = max(lower_bound, outcome.bound / problem.cost_scale)
        if outcome.values is None:
            limit = ""
            if outcome.status == "infeasible":
                limit = (
                    f"the tolerance of {limits.solver!r}: what it found needs more than the budget, and within "
                    f"{exact_bytes(room)}, so much less, it finds nothing, which proves nothing about the budget"
                )
            return Answer(None, lower_bound, solver=limits.solver, limit=limit)
        schedule = problem.schedule(outcome.values)
        excess = Plan.of(schedule).peak - budget
        if excess <= 0:
            limits.tell("done", schedule, lower_bound)
            return Answer(schedule, lower_bound, solver=limits.solver)
        # the solver's tolerance is relative, so it may let through a few bytes too many: ask for that much less
        room -= excess


ILP = Method(
    solve_checkmate_ilp,
    "problem (9) as the paper writes it; splits=k lets an operation run k times in a stage",
    "Jain et al. 2020, section 4.7; arXiv 1910.02653v1, section 4.10, for the splits",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    options=("splits",),
    complete=True,
    symbol="triangle-up",
)


# Operations. Chains, with a minute of HiGHS: 9 operations are proven optimal; with 17 the optimum is found, but not
# proven; with 25 a schedule is found that costs 8 % more than the best known; with 33 none is.
LARGEST_UNPARTITIONED = 25


def solve_checkmate_unpartitioned(graph: Graph, budget: int, limits: Limits) -> Answer:
    """Solve the unpartitioned problem with n rows, the paper's number of stages.

    Its bound and its optimum are those of all schedules with n rows, so the optimum may be below that of
    frontier-advancing schedules.
    """
    if graph.n > LARGEST_UNPARTITIONED:
        raise SolverError(
            f"graph {graph.name!r} has {graph.n} operations; 'checkmate-unpartitioned' shows on graphs of at most "
            f"{LARGEST_UNPARTITIONED} why stages matter, and finds no schedule in time on larger ones: use 'optimal', "
            "or 'checkmate-ilp' for the paper's problem with stages; its linear programming bound without stages is "
            "relax(graph, budget, 'checkmate-unpartitioned')"
        )
    return _solve_rows(graph, budget, limits, StageRows(graph.n, partitioned=False), "the unpartitioned problem")


UNPARTITIONED = Method(
    solve_checkmate_unpartitioned,
    "the paper's unpartitioned form, for small graphs; it shows why the partition matters",
    "Jain et al. 2020, sections 4.2 to 4.5",
    general_graphs=Support.YES,
    cost_aware=Support.YES,
    memory_aware=Support.YES,
    stages=False,
    smallest_budget=smallest_budget_without_stages,
    symbol="star",
)
