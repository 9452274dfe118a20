"""The back ends: the same optimum from each on every shared instance, and what is said where one is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remat_explorer.cli import main
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import SolveJob, checkpoint_all_peak, minimum_budget, relax, solve
from remat_explorer.solvers.milp import Milp
from tests.thorough import thorough_but

DATA = Path(__file__).parents[1] / "data"
INSTALLED = ("highs", "cbc")
SLOW_FOR_PROBLEM_9 = 9  # operations; CBC takes seconds for problem (9) on larger graphs


def both(graph: Graph, budget: int, strategy: str, **options: Any) -> None:
    """The same status, cost and bound from both back ends, cost and bound equal where there is a schedule."""
    found = [solve(graph, budget, strategy, solver=solver, **options) for solver in INSTALLED]
    answers = {(solution.status, solution.cost, solution.lower_bound) for solution in found}
    assert len(answers) == 1, (graph.name, budget, strategy, answers)
    assert found[0].cost == found[0].lower_bound


def both_relaxed(graph: Graph, budget: int, formulation: str) -> None:
    """The same linear programming bound from both back ends, or infeasible in both."""
    bounds = [relax(graph, budget, formulation, solver) for solver in INSTALLED]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6, abs=1e-6), (graph.name, budget, formulation)


def test_both_back_ends_agree_on_the_small_reference_graphs(reference, small_graph):
    for entry in reference("exact_small_graphs.json"):
        graph = small_graph(entry)
        both(graph, entry["budget"], "optimal")
        if graph.n <= SLOW_FOR_PROBLEM_9:
            both(graph, entry["budget"], "checkmate-ilp")
        for formulation in ("optimal", "checkmate-ilp"):
            both_relaxed(graph, entry["budget"], formulation)


def test_both_back_ends_agree_on_the_reference_chains(reference):
    for entry in reference("optimal_linear.json"):
        chain = linear((entry["n"] - 1) // 2)
        if chain.n <= 17:
            both(chain, entry["budget"], "optimal")
            both_relaxed(chain, entry["budget"], "optimal")
            both_relaxed(chain, entry["budget"], "checkmate-ilp")
        if chain.n <= SLOW_FOR_PROBLEM_9:
            both(chain, entry["budget"], "checkmate-ilp")
            both_relaxed(chain, entry["budget"], "checkmate-unpartitioned")


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(5)))
def test_both_back_ends_agree_on_random_training_graphs(seed, random_graph, overwriting_graph):
    graph = (random_graph, overwriting_graph)[seed % 2](seed, layers=3)
    low, high = minimum_budget(graph, seconds=0.2).lower_bound, checkpoint_all_peak(graph)
    budget = low + (high - low) * (seed % 4) // 5
    both(graph, budget, "optimal")
    both(graph, budget, "checkmate-ilp")
    both(graph, budget, "checkmate-ilp", splits=2)
    for formulation in ("optimal", "checkmate-ilp", "checkmate-unpartitioned"):
        both_relaxed(graph, budget, formulation)


@pytest.fixture
def no_gurobi(monkeypatch):
    """As if Gurobi were not installed, whether it is or not."""
    import mip.gurobi

    monkeypatch.setattr(mip.gurobi, "has_gurobi", False)


HOW_TO_GET_IT = "'gurobi' cannot be loaded: Gurobi not found; get Gurobi with a licence .*pip install .*GUROBI_HOME"


def test_a_missing_solver_is_an_error_that_says_how_to_get_it_where_one_is_needed(no_gurobi):
    vgg_unet = Graph.load(str(DATA / "graphs" / "keras_vgg_unet.json"))
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
        (
            InterfacingError("Gurobi environment could not be loaded, check your license."),
            "your license",
        ),
        (AttributeError("function/symbol 'GRBloadenv' not found in library 'libgurobi.so'"), "symbol 'GRBloadenv'"),
    ):

        def refuse(*arguments, raised=raised):
            raise raised

        monkeypatch.setattr(mip.gurobi, "SolverGurobi", refuse)
        with pytest.raises(SolverError, match=f"cannot be loaded: .*{said}.*; get Gurobi"):
            Milp("gurobi")


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_solves_with_different_numbers_of_threads_follow_each_other(solver):
    chosen = (1, 2, 1, 3)
    costs = [solve(linear(4), "60%", "checkmate-ilp", solver=solver, threads=threads).cost for threads in chosen]
    assert costs == [15.0] * len(chosen)


@pytest.mark.skipif("__import__('mip.gurobi').gurobi.has_gurobi", reason="Gurobi is installed here")
def test_a_job_and_the_command_line_pass_a_missing_solver_on(capsys, tmp_path):
    job = SolveJob.start(linear(8), 4, "checkmate-ilp", solver="gurobi")
    assert job.wait(60)
    with pytest.raises(SolverError, match=HOW_TO_GET_IT):
        job.solution()
    chain = str(tmp_path / "chain.json")
    linear(8).save(chain)
    assert main(["solve", chain, "--budget", "4", "--strategy", "checkmate-ilp", "--solver", "gurobi"]) == 64
    assert "get Gurobi with a licence" in capsys.readouterr().err


@pytest.mark.parametrize("solver", ["highs", "cbc"])
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
