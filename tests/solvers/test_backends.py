"""The back ends: the same optimum and the same rows from each, and what is said where one is missing."""

import subprocess
import sys
from typing import Any

import mip
import pytest

from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget, relax, solve
from remat_explorer.solvers.milp import Milp
from tests.thorough import thorough_but

INSTALLED = ("highs", "cbc")


@pytest.mark.parametrize("seed", thorough_but(range(12), 0, 1, 2))
def test_both_back_ends_agree_on_random_training_graphs(seed, random_graph, overwriting_graph):
    """The same status, cost and bound, cost and bound equal where there is a schedule, and the same relaxations."""
    graph = (random_graph, overwriting_graph)[seed % 2](seed, layers=3)
    low, high = minimum_budget(graph).lower_bound, checkpoint_all_peak(graph)
    budget = low + (high - low) * (seed % 4) // 5
    for strategy, splits in (("optimal", 1), ("checkmate-ilp", 1), ("checkmate-ilp", 2)):
        options: dict[str, Any] = {"splits": splits} if splits > 1 else {}
        found = [solve(graph, budget, strategy, solver=solver, **options) for solver in INSTALLED]
        assert len({(solution.status, solution.cost, solution.lower_bound) for solution in found}) == 1, strategy
        assert found[0].cost == found[0].lower_bound
    for formulation in ("optimal", "checkmate-ilp", "checkmate-unpartitioned"):
        bounds = [relax(graph, budget, formulation, solver) for solver in INSTALLED]
        assert bounds[0] == pytest.approx(bounds[1], rel=1e-6, abs=1e-6), formulation


@pytest.fixture
def no_gurobi(monkeypatch):
    """As if Gurobi were not installed, whether it is or not."""
    import mip.gurobi

    monkeypatch.setattr(mip.gurobi, "has_gurobi", False)


HOW_TO_GET_IT = "'gurobi' cannot be loaded: Gurobi not found; get Gurobi with a licence .*pip install .*GUROBI_HOME"


def test_a_missing_solver_is_an_error_that_says_how_to_get_it_where_one_is_needed(no_gurobi, data):
    vgg_unet = Graph.load(str(data / "graphs" / "keras_vgg_unet.json"))
    for graph, budget, strategy in (
        (vgg_unet, "50%", "optimal"),
        (linear(8), 4, "checkmate-ilp"),
        (linear(8), 4, "checkmate-unpartitioned"),
    ):
        with pytest.raises(SolverError, match=HOW_TO_GET_IT):
            solve(graph, budget, strategy, solver="gurobi")
    assert solve(linear(8), 4, solver="gurobi").cost == 26
    with pytest.raises(SolverError, match=HOW_TO_GET_IT):
        relax(linear(2), 3, solver="gurobi")


def test_a_library_or_a_licence_that_does_not_fit_is_told_apart_from_a_missing_one(monkeypatch):
    import mip.gurobi
    from mip.exceptions import InterfacingError

    for raised, said in (
        (InterfacingError("Gurobi environment could not be loaded, check your license."), "your license"),
        (AttributeError("function/symbol 'GRBloadenv' not found in library 'libgurobi.so'"), "symbol 'GRBloadenv'"),
    ):

        def refuse(*arguments, raised=raised):
            raise raised

        monkeypatch.setattr(mip.gurobi, "SolverGurobi", refuse)
        with pytest.raises(SolverError, match=f"cannot be loaded: .*{said}.*; get Gurobi"):
            Milp("gurobi")


@pytest.mark.parametrize("solver", INSTALLED)
def test_a_solved_relaxation_becomes_the_integer_program_with_its_continuous_columns_left_so(solver):
    problem = Milp(solver, relaxed=True)
    x = problem.column(cost=-1, integer=True)
    y = problem.column(cost=-1)
    problem.row([x], [2], "<", 1)
    problem.row([y], [2], "<", 1)
    assert problem.solve().objective == pytest.approx(-1.0)
    problem.require_integers()
    z = problem.column(cost=-1, integer=True)
    problem.row([z], [4], "<", 3)
    assert problem.solve().values == pytest.approx([0.0, 0.5, 0.0])


COLUMNS = 4


def model_of(solver_name: str) -> Any:
    model: Any = mip.Model(sense=mip.MINIMIZE, solver_name=solver_name)
    model.verbose = 0
    for _ in range(COLUMNS):
        model.add_var(lb=0, ub=1)
    return model


@pytest.mark.parametrize(("sense", "right"), [("<", -1), (">", 1), ("=", 1)])
def test_a_row_without_columns_that_cannot_hold_makes_the_problem_infeasible(sense, right):
    problem = Milp()
    column = problem.column()
    problem.row([column, column], [1, -1], sense, right)  # the two cancel
    assert problem.contradiction
    assert problem.solve().status == "infeasible"


FREED = """
import gc, importlib, sys
from remat_explorer.solvers.milp import Milp
problem = Milp(sys.argv[1])
with importlib.import_module(sys.argv[2]).ffi._lock:  # as where garbage is collected while cffi looks something up
    del problem
    gc.collect()
print("freed")
"""


@pytest.mark.parametrize(("solver", "module"), [("highs", "mip.highs"), ("cbc", "mip.cbc")])
def test_the_first_model_is_freed_also_while_cffi_holds_its_lock(solver, module):
    command = [sys.executable, "-c", FREED, solver, module]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "freed\n"


@pytest.mark.parametrize("solver", INSTALLED)
def test_solves_with_different_numbers_of_threads_follow_each_other(solver):
    chosen = (1, 2, 1, 3)
    costs = [solve(linear(4), "60%", "checkmate-ilp", solver=solver, threads=threads).cost for threads in chosen]
    assert costs == [15.0] * len(chosen)
