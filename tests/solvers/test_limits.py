"""An answer that is not proven says what ended the search."""

import dataclasses

import pytest

import remat_explorer as rx
from remat_explorer.instances import linear
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers.base import INTERRUPTION, Answer
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.solve import judge
from remat_explorer.solvers.strategies.registry import STRATEGIES
from remat_explorer.solvers.sweeps.frontier import Frontier
from tests.fuzz.file_kinds import choosing

UNPROVEN = (Status.FEASIBLE, Status.UNKNOWN)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("time_limit", [0.0, 1.0])
def test_every_strategy_says_what_ended_it_where_it_has_proven_nothing(strategy, time_limit):
    graph = choosing() if strategy == "monet" else linear(8)
    for budget in ("40%", "80%"):
        solution = rx.solve(graph, budget, strategy, time_limit=time_limit)
        assert (solution.limit != "") == (solution.status in UNPROVEN), solution
        if solution.schedule is None and solution.limit:
            assert str(solution).endswith(f", ended by {solution.limit}")


def test_a_time_limit_that_was_reached_is_named():
    assert rx.solve(linear(8), "60%", "checkmate-ilp", time_limit=0.0).limit == "the time limit of 0 µs"


def test_an_interruption_is_named():
    assert rx.solve(linear(8), "60%", "checkmate-ilp", cancelled=lambda: True).limit == INTERRUPTION


def test_problem_9_says_that_it_cannot_tell_where_its_solver_goes_a_few_bytes_beyond_the_budget(monkeypatch):
    solve, asked = Milp.solve, []

    def beyond_then_infeasible(milp, *arguments, **options):
        asked.append(milp)
        if len(asked) > 1:
            return MilpOutcome("infeasible", None, float("inf"), None)
        return solve(roomy, *arguments, **options)

    from remat_explorer.solvers import checkmate_problem
    from remat_explorer.solvers.base import Limits

    graph = linear(8)
    problem = checkmate_problem.CheckmateProblem(checkmate_problem.Condensed.of(graph), 6, roomy := Milp("highs", 1))
    assert problem.build(Limits())
    monkeypatch.setattr(Milp, "solve", beyond_then_infeasible)
    solution = rx.solve(graph, 5, "checkmate-ilp")
    assert solution.status is Status.UNKNOWN
    assert "the tolerance of 'highs'" in solution.limit
    assert "proves nothing about the budget" in solution.limit


def test_the_limit_is_written_where_there_is_one_and_files_without_it_are_read():
    graph = linear(8)
    feasible = rx.solve(graph, "80%", "checkpoint-last", time_limit=5)
    limited = dataclasses.replace(feasible, status=Status.UNKNOWN, schedule=None, limit="the time limit of 5.0 s")
    for solution in (limited, rx.solve(graph, "100%")):
        document = solution.to_document()
        assert ("limit" in document) == (solution.limit != "")
        assert Solution.from_document(document, graph).limit == solution.limit
        document.pop("limit", None)  # as files of version 0.2 are
        assert Solution.from_document(document, graph).limit == ""
        sweep = Frontier(graph, (solution,)).to_document()
        assert Frontier.from_document(sweep, graph).solutions[0].limit == solution.limit


def test_what_is_proven_has_no_limit():
    answer = Answer(None, infeasible=True, limit="the time limit of 1.0 s")
    assert judge(linear(8), 2, "optimal", answer, 0.1).limit == ""
