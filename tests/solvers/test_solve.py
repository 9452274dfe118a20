"""One call for every strategy: statuses, budgets, names; limits, which are kept and named; threads."""

import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.cli.parser import make_parser
from remat_explorer.errors import QuantityError, SolverError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import (
    STRATEGIES,
    SolveJob,
    Sweep,
    checkpoint_all,
    checkpoint_all_peak,
    milp,
    minimum_budget,
    registry,
    relax,
    solve,
    solver_interface,
)
from remat_explorer.solvers.anytime_search.monet import JointSearch
from remat_explorer.solvers.anytime_search.optimal import PlainSearch
from remat_explorer.solvers.checkmate_problem import CheckmateProblem
from remat_explorer.solvers.condensed_graph import CondensedGraph, largest_operation
from remat_explorer.solvers.milp import Milp, MilpOutcome
from remat_explorer.solvers.registry import threads_of
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.solve import judge, round_up
from remat_explorer.solvers.solver_interface import INTERRUPTION, Answer, Incumbent, Limits, Progress
from remat_explorer.solvers.sweeps.frontier import Frontier
from tests.fuzz.file_kinds import choosing
from tests.solvers.drawn_graphs import heterogeneous_chain
from tests.solvers.helpers import present, simple_graph
from tests.solvers.monet.choice_graphs import in_place_only, overwriting, random_graph
from tests.thorough import thorough, thorough_but


def test_a_captured_network_whose_largest_convolution_needs_more_is_infeasible(captured):
    graph = captured("vgg16")
    solution = solve(graph, "50%")  # that one alone needs 69 % of the checkpoint-all peak
    assert solution.status == Status.INFEASIBLE
    assert minimum_budget(graph).lower_bound > solution.budget


def test_a_budget_below_the_largest_operation_is_infeasible_at_once_for_every_strategy():
    for strategy in STRATEGIES:
        solution = solve(linear(300), 2, strategy, time_limit=0.5)
        assert (solution.status, solution.schedule, solution.lower_bound) == (Status.INFEASIBLE, None, None)


def test_a_budget_that_fits_every_operation_but_no_schedule_is_proven_infeasible():
    """a and b each come from a value twice their size, and their sum needs both: one must wait beside the other's."""
    graph = simple_graph([[], [0], [], [2], [1, 3]], sizes=[2, 1, 2, 1, 1])
    found = minimum_budget(graph)
    assert (largest_operation(graph)[1], found.lower_bound, found.known_feasible) == (3, 4, 4)
    for strategy in ("optimal", "checkmate-ilp"):
        assert solve(graph, 3, strategy).status == Status.INFEASIBLE
        assert solve(graph, 4, strategy).status == Status.OPTIMAL


@pytest.mark.parametrize(("strategy", "solver"), [thorough("optimal", "cbc"), ("checkmate-ilp", "highs")])
def test_the_time_limit_is_kept(strategy, solver, captured):
    """Without it both take minutes, and what they find is proven; a budget that they are not done with in time."""
    solution = solve(captured("mobilenet_v1"), "40%", strategy, time_limit=2, solver=solver)
    assert solution.limit == "the time limit of 2.0 s"
    assert solution.lower_bound is not None
    assert (solution.schedule is not None) == (strategy == "optimal")


def test_a_solve_that_is_cancelled_still_has_the_planners_schedule_and_a_bound(captured):
    graph, seen = captured("mobilenet_v1"), []
    stop = {"on_progress": seen.append, "cancelled": lambda: any(progress.schedule for progress in seen)}
    solution = solve(graph, "40%", time_limit=3600, **stop)
    assert solution.status == Status.FEASIBLE
    assert present(solution.lower_bound) >= graph.total_cost
    assert present(solution.peak) <= solution.budget


def test_back_ends_print_nothing(capfd):
    for solver in ("highs", "cbc"):
        for strategy in ("optimal", "checkmate-ilp"):
            solve(linear(4), 4, strategy, solver=solver)
        relax(linear(4), 4, solver=solver)
    assert capfd.readouterr().out == ""


def test_what_cannot_be_solved_is_quoted_with_near_matches():
    ways = (Implementation((), (0,), 2.0), Implementation((), (0,), 1.0, 8, "fast"))
    several = Graph("choice", (Value("x", 1),), (Operation("conv", "forward", ways),))
    for call, error, message in (
        (lambda: solve(linear(2), 4, "optimum"), UnknownNameError, "did you mean 'optimal'"),
        (lambda: solve(linear(2), 4, solver="hihgs"), UnknownNameError, "unknown solver 'hihgs'; did you mean 'highs'"),
        (lambda: relax(linear(2), 4, "checkmate"), UnknownNameError, "unknown formulation"),
        (lambda: solve(linear(2), "a lot"), QuantityError, "'a lot'"),
        (lambda: solve(several, 100), SolverError, "'conv' has 2 implementations"),
    ):
        with pytest.raises(error, match=message):
            call()


def test_lower_bounds_are_rounded_to_costs_that_exist_and_never_above_the_cost():
    graph = Graph("even", (Value("x", 1),), (operation("x", "forward", [], [0], 6),))
    assert round_up(graph, 6.2) == 12
    assert round_up(graph, 6.0000001) == 6
    solution = judge(graph, 1, "optimal", Answer(checkpoint_all(graph), 6.00001), 0.0)
    assert (solution.lower_bound, solution.status) == (6.0, Status.OPTIMAL)


def test_huge_and_odd_bytes_are_never_exceeded_by_a_byte(random_graph):
    """Budgets of terabytes with odd sizes: the solver's tolerance alone would let thousands of bytes through."""
    for seed in range(4):
        graph = random_graph(seed, layers=4)
        random = np.random.default_rng(seed)
        values = (replace(v, bytes=v.bytes * 10**12 + int(random.integers(0, 99))) for v in graph.values)
        large = Graph("large", tuple(values), graph.operations)
        low, high = minimum_budget(large).lower_bound, int(checkpoint_all(large).U.max())
        reference = solve(large, (low + high) // 2)
        if reference.peak is not None:
            tight = solve(large, reference.peak - 1)  # one byte less than a peak that is attained
            assert tight.peak is None or tight.peak < reference.peak


def between(graph, fraction: float) -> int:
    """A budget between the largest operation's bytes and checkpoint-all's peak."""
    least = largest_operation(graph)[1]
    return int(least + fraction * (checkpoint_all_peak(graph) - least))


def test_costs_fall_and_bounds_rise_until_they_meet(captured):
    graph = captured("vgg16")
    heard: list[Progress] = []
    solution = solve(graph, between(graph, 0.05), on_progress=heard.append)
    assert solution.status is Status.OPTIMAL
    costs = [progress.schedule.cost for progress in heard if progress.schedule is not None]
    bounds = [progress.lower_bound for progress in heard if progress.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert len(set(bounds)) > 2
    assert bounds[-1] <= costs[-1] + 1e-9
    assert [progress.seconds for progress in heard] == sorted(progress.seconds for progress in heard)
    assert len({progress.doing for progress in heard}) >= 3


@pytest.mark.parametrize("name", thorough_but(["vgg16", "unet"], "vgg16"))
def test_a_search_run_to_its_end_repeats_itself_on_one_thread_and_on_two(name, captured):
    graph = captured(name)
    found = [solve(graph, between(graph, 0.5), threads=threads, time_limit=3600) for threads in (1, 2)]
    assert [solution.status for solution in found] == [Status.OPTIMAL] * 2
    one, other = (present(solution.schedule).R for solution in found)
    assert np.array_equal(one, other)
    assert found[0].lower_bound == found[1].lower_bound


def test_a_search_begins_with_what_is_known():
    chain = linear(8)
    known = solve(chain, 4)
    heard: list[Progress] = []
    limits = Limits(30, report=heard.append)
    answer = PlainSearch(CondensedGraph.of(chain), 4, limits, known.schedule, known.lower_bound or 0.0).run()
    assert answer.schedule is known.schedule
    assert answer.lower_bound == known.lower_bound
    assert len(heard) == 1  # there was nothing left to do


@pytest.mark.parametrize(
    ("chain", "budget"),
    [(linear(32), 6), (linear(100), 9), (heterogeneous_chain(0, 60), 40)],
    ids=lambda value: value.name if isinstance(value, Graph) else str(value),
)
def test_on_a_chain_what_is_known_before_the_first_bound_is_as_cheap_as_the_methods_for_chains(chain, budget):
    rivals = [solve(chain, budget, strategy).cost for strategy in ("griewank", "rotor")]
    heard: list[Progress] = []
    limits = Limits(report=heard.append, cancelled=lambda: any("bounding" in progress.doing for progress in heard))
    answer = PlainSearch(CondensedGraph.of(chain), budget, limits).run()
    assert present(answer.schedule).cost <= min(cost for cost in rivals if cost is not None)


UNPROVEN = (Status.FEASIBLE, Status.UNKNOWN)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_every_strategy_says_what_ended_it_where_it_has_proven_nothing(strategy):
    cases = [(linear(8), "40%", 0.0), (linear(8), "80%", 0.0), (linear(2), "80%", 60.0)]
    for graph, budget, time_limit in cases if strategy != "monet" else [(choosing(), *case[1:]) for case in cases]:
        solution = rx.solve(graph, budget, strategy, time_limit=time_limit)
        assert (solution.limit != "") == (solution.status in UNPROVEN), solution
        if solution.schedule is None and solution.limit:
            assert str(solution).endswith(f", ended by {solution.limit}")


def test_a_time_limit_that_was_reached_and_an_interruption_are_named():
    assert rx.solve(linear(8), "60%", "checkmate-ilp", time_limit=0.0).limit == "the time limit of 0 µs"
    assert rx.solve(linear(8), "60%", "checkmate-ilp", cancelled=lambda: True).limit == INTERRUPTION
    infeasible = Answer(None, infeasible=True, limit="the time limit of 1.0 s")
    assert judge(linear(8), 2, "optimal", infeasible, 0.1).limit == ""  # which is proven


def test_problem_9_says_that_it_cannot_tell_where_its_solver_goes_a_few_bytes_beyond_the_budget(monkeypatch):
    solve, asked = Milp.solve, []

    def beyond_then_infeasible(milp, *arguments, **options):
        asked.append(milp)
        if len(asked) > 1:
            return MilpOutcome("infeasible", None, float("inf"), None)
        return solve(roomy, *arguments, **options)

    graph = linear(8)
    roomy = Milp()
    assert CheckmateProblem(CondensedGraph.of(graph), 6, roomy).build(Limits())
    monkeypatch.setattr(Milp, "solve", beyond_then_infeasible)
    solution = rx.solve(graph, 5, "checkmate-ilp")
    assert solution.status is Status.UNKNOWN
    assert "the tolerance of 'highs'" in solution.limit
    assert "proves nothing about the budget" in solution.limit


def test_the_limit_is_written_where_there_is_one_and_files_without_it_are_read():
    graph = linear(8)
    feasible = rx.solve(graph, "80%", "checkpoint-last", time_limit=5)
    limited = replace(feasible, status=Status.UNKNOWN, schedule=None, limit="the time limit of 5.0 s")
    for solution in (limited, rx.solve(graph, "100%")):
        document = solution.to_document()
        assert ("limit" in document) == (solution.limit != "")
        assert Solution.from_document(document, graph).limit == solution.limit
        document.pop("limit", None)  # as files of version 0.2 are
        assert Solution.from_document(document, graph).limit == ""
        sweep = Frontier(graph, (solution,)).to_document()
        assert Frontier.from_document(sweep, graph).solutions[0].limit == solution.limit


@pytest.fixture
def endless(monkeypatch):
    """Two binary columns, of which one must be 1, with a back end that works until the test ends."""
    problem, ended = Milp(), threading.Event()
    columns = [problem.column(cost=cost, integer=True) for cost in (2.0, 3.0)]
    problem.row(columns, [1.0, 1.0], ">", 1.0)
    monkeypatch.setattr(problem._model, "optimize", lambda **options: ended.wait())
    yield problem
    ended.set()


def test_a_back_end_that_does_not_look_at_its_clock_is_left_to_itself(endless, monkeypatch):
    monkeypatch.setattr(milp, "LATE", 0.0)
    assert endless.solve(1e-3) == MilpOutcome("unknown", None, -math.inf, None)
    monkeypatch.undo()  # the back end would answer now, but its model is still in use
    assert endless.solve() == MilpOutcome("unknown", None, -math.inf, None)


def test_a_back_end_that_works_for_ever_ends_with_a_cancel_and_its_error_reaches_who_asked(endless, monkeypatch):
    asked = itertools.count()
    assert endless.solve(cancelled=lambda: next(asked) > 2).status == "unknown"
    failing = Milp()
    failing.column(cost=1.0, integer=True)
    monkeypatch.setattr(failing._model, "optimize", lambda **options: [][0])
    with pytest.raises(IndexError, match="out of range"):
        failing.solve()


def searched(seed, tick, monkeypatch, time_limit=1000.0):
    """What the search of `monet` reports, each look at the clock taking ``tick`` seconds, and what time it is then."""
    clock = itertools.count()
    monkeypatch.setattr(solver_interface, "time", SimpleNamespace(monotonic=lambda: tick * next(clock)))
    graph = in_place_only(overwriting(random_graph(seed, layers=4)))
    trail = []

    def hear(progress):
        if (progress.doing, progress.cost) not in trail:
            trail.append((progress.doing, progress.cost))

    # `started` is a default factory of the clock that the module had first
    limits = Limits(time_limit, threads=1, report=hear, started=solver_interface.time.monotonic())
    JointSearch(graph, int(0.85 * checkpoint_all_peak(graph)), limits, exact_up_to=0, exact_beside=0).run()
    return trail, tick * next(clock)


@pytest.mark.parametrize("seed", thorough_but([0, 1], 0))
def test_a_faster_clock_changes_nothing_of_what_is_found_before_the_limit(seed, monkeypatch):
    slow, used = searched(seed, 0.001, monkeypatch)
    assert len(slow) > 5
    fast, _ = searched(seed, 0.03, monkeypatch, time_limit=60 * used)
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


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_searches_have_a_second_thread_where_there_is_a_second_core_unless_threads_were_chosen(cores, monkeypatch):
    monkeypatch.setattr(registry, "cores", lambda: cores)
    searches = ("optimal", "monet", "moccasin")
    assert {name: threads_of(name) for name in STRATEGIES} == {
        name: min(2, cores) if name in searches else 1 for name in STRATEGIES
    }
    assert [threads_of(name, 3) for name in STRATEGIES] == [3] * len(STRATEGIES)
    given, strategy = [], STRATEGIES["optimal"]

    def counting(graph, budget, limits):
        given.append(limits.threads)
        return strategy(graph, budget, limits)

    monkeypatch.setitem(STRATEGIES, "optimal", replace(strategy, run=counting))
    for threads in (None, 1):
        solve(linear(8), 6, threads=threads)
        job = SolveJob.start(linear(8), 4, threads=threads)
        job.cancel()
        assert job._question.threads == given[-1] == (threads or min(2, cores))


def test_the_command_line_leaves_the_choice_open_and_gives_workers_of_a_sweep_one_thread_each():
    parse = make_parser().parse_args
    assert parse(["solve", "chain.json", "--budget", "60%"]).threads is None
    assert parse(["solve", "chain.json", "--budget", "60%", "--threads", "3"]).threads == 3
    assert parse(["sweep", "chain.json"]).threads == 1
    assert Sweep(linear(8), [4])._threads == 1


def schedules() -> list[Schedule]:
    """Schedules of one chain within ever larger budgets: the later, the cheaper."""
    return [present(solve(linear(8), budget).schedule) for budget in (4, 5, 6, 10)]


def test_without_a_schedule_an_infinite_bound_is_infeasibility():
    known = Incumbent(Limits())
    assert not known.within(0.1)
    known.raise_bound(math.inf)
    assert known.within(0.1)
    assert known.answer().infeasible
    known = Incumbent(Limits(), schedules()[0], 17.0)
    known.raise_bound(math.inf)  # which a schedule in hand refutes
    assert known.bound == 17.0
    assert not known.answer().infeasible


def test_of_several_threads_the_cheapest_schedule_and_the_highest_bound_stay():
    known, found = Incumbent(Limits()), schedules()

    def work(turn: int) -> None:
        for i in range(200):
            known.keep(found[(turn + i) % len(found)])
            known.raise_bound(float((turn * 7 + i) % 16))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert known.schedule is found[-1]
    assert known.bound == 15.0


def test_a_steps_report_is_never_worse_than_what_is_known():
    heard: list[Progress] = []
    dearest, *_, cheapest = schedules()
    known = Incumbent(Limits(report=heard.append), cheapest, 17.0)
    step = Progress(0.5, "a step", dearest, 16.0)
    for progress in (step, replace(step, schedule=None, lower_bound=None)):
        known.pass_on(progress)
    assert [(progress.schedule, progress.lower_bound) for progress in heard] == [(cheapest, 17.0)] * 2
    Incumbent(Limits(report=heard.append), dearest).pass_on(Progress(0.5, "a step", cheapest, 16.0))
    assert (heard[-1].schedule, heard[-1].lower_bound) == (cheapest, 16.0)
