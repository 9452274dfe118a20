"""An answer that is not proven says what ended the search."""

import dataclasses
import itertools
import math
import threading
from types import SimpleNamespace

import pytest

import remat_explorer as rx
from remat_explorer.instances import linear
from remat_explorer.solvers import base, checkpoint_all_peak, milp
from remat_explorer.solvers.anytime.monet import JointSearch
from remat_explorer.solvers.base import INTERRUPTION, Answer, Limits
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.solve import judge
from remat_explorer.solvers.sweeps.frontier import Frontier
from tests.fuzz.file_kinds import choosing
from tests.solvers.monet.choice_graphs import in_place_only, overwriting, random_graph

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


@pytest.fixture
def integer_program():
    """Two binary columns, of which one must be 1."""
    problem = Milp()
    columns = [problem.column(cost=cost, integer=True) for cost in (2.0, 3.0)]
    problem.row(columns, [1.0, 1.0], ">", 1.0)
    return problem


@pytest.fixture
def endless(integer_program, monkeypatch):
    """The same, whose back end works until the test ends."""
    ended = threading.Event()
    monkeypatch.setattr(integer_program._model, "optimize", lambda **options: ended.wait())
    yield integer_program
    ended.set()


def test_a_back_end_that_does_not_look_at_its_clock_is_left_to_itself(endless, monkeypatch):
    monkeypatch.setattr(milp, "LATE", 0.0)
    assert endless.solve(1e-3) == MilpOutcome("unknown", None, -math.inf, None)
    monkeypatch.undo()  # the back end would answer now, but its model is still in use
    assert endless.solve() == MilpOutcome("unknown", None, -math.inf, None)


def test_a_back_end_that_works_for_ever_ends_with_a_cancel(endless):
    asked = itertools.count()
    assert endless.solve(cancelled=lambda: next(asked) > 2).status == "unknown"


def test_an_error_of_the_back_end_is_raised_in_the_thread_that_asked(integer_program, monkeypatch):
    def fail(**options):
        raise ValueError("no basis")

    monkeypatch.setattr(integer_program._model, "optimize", fail)
    with pytest.raises(ValueError, match="no basis"):
        integer_program.solve()


def searched(seed, tick, monkeypatch, time_limit=1000.0):
    """What the search of `monet` reports, each look at the clock taking ``tick`` seconds, and what time it is then."""
    clock = itertools.count()
    monkeypatch.setattr(base, "time", SimpleNamespace(monotonic=lambda: tick * next(clock)))
    graph = in_place_only(overwriting(random_graph(seed, layers=4)))
    trail = []

    def hear(progress):
        if (progress.doing, progress.cost) not in trail:
            trail.append((progress.doing, progress.cost))

    # `started` is a default factory of the clock that the module had first
    limits = Limits(time_limit, threads=1, report=hear, started=base.time.monotonic())
    JointSearch(graph, int(0.85 * checkpoint_all_peak(graph)), limits, exact_up_to=0, exact_beside=0).run()
    return trail, tick * next(clock)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_faster_clock_changes_nothing_of_what_is_found_before_the_limit(seed, monkeypatch):
    slow, used = searched(seed, 0.001, monkeypatch)
    assert len(slow) > 5
    for times in (3, 30):
        fast, _ = searched(seed, 0.001 * times, monkeypatch, time_limit=2 * times * used)
        assert fast == slow
    limited, _ = searched(seed, 0.001, monkeypatch, time_limit=used / 2)
    assert limited[:-1] == slow[: len(limited) - 1]  # the limit ends the whole, and what it reports last is "done"


def test_every_step_of_monet_ends_with_a_cancel_after_the_program_that_it_solves(monkeypatch):
    graph = in_place_only(overwriting(random_graph(0, layers=4)))
    budget, optimize = int(0.85 * checkpoint_all_peak(graph)), Milp._optimize
    solved, cancelled, said = [], [], set()

    def counted(problem, seconds):
        solved.append(bool(cancelled))
        return optimize(problem, seconds)

    monkeypatch.setattr(Milp, "_optimize", counted)

    def search(at):
        solved.clear()
        cancelled.clear()

        def hear(progress):
            said.add(progress.doing)
            if progress.doing == at:
                cancelled.append(True)

        limits = Limits(600, threads=1, report=hear, cancelled=lambda: bool(cancelled))
        JointSearch(graph, budget, limits, exact_up_to=0, exact_beside=0).run()
        return sum(solved)

    assert search(None) == 0
    assert len(said) > 5
    for doing in sorted(said):
        assert search(doing) <= 1, doing
