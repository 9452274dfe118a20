"""The joint problem, MONeT's restriction of it, and the anytime search of `monet`: optima, windows and limits."""

import json
import math
from pathlib import Path

import pytest

from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import Sweep, checkpoint_all_peak, solve, sweep
from remat_explorer.solvers.anytime_search.monet import JointSearch, improve_monet
from remat_explorer.solvers.condensed_graph import CondensedGraph
from remat_explorer.solvers.methods.monet_paper import PaperProblem
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.monet.selections import default_selection, make_consistent, restricted_to, smallest
from remat_explorer.solvers.monet.windows import WindowSearch, choices_near
from remat_explorer.solvers.search.planner import plan_schedule
from remat_explorer.solvers.solver_interface import Answer, Limits, Progress
from remat_explorer.solvers.sweeps.sweep_points import SweepPoints
from reproduction.p100 import p100_graph
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.helpers import present
from tests.solvers.monet.choice_graphs import MIB, anywhere, in_place_only, monet_chain, overwriting, random_graph
from tests.thorough import thorough_but

REFERENCE = json.loads((Path(__file__).parents[2] / "data" / "monet_chain.json").read_text())
OBJECTIVES = {(entry["case"], entry["budget_mib"]): entry["objective"] for entry in REFERENCE}


def chain_of(case: str) -> Graph:
    layers, reads = case.removeprefix("chain").split("_")
    return monet_chain(int(layers), reads)


def in_place(seed: int, layers: int) -> Graph:
    return in_place_only(overwriting(random_graph(seed, layers)))


def exactly(graph: Graph, budget: int) -> float:
    problem = JointProblem(CondensedChoices.of(graph), budget, Milp(relaxed=True))
    assert problem.build(Limits())
    schedule, bound = problem.solve(Limits())
    if schedule is None:
        assert math.isinf(bound)
        return math.inf
    assert bound == pytest.approx(schedule.cost)
    return schedule.cost


def test_the_joint_problem_costs_at_most_what_monet_does():
    """MONeT cannot drop a checkpoint in the stage of its last use.

    Where memory is tightest, that costs its formulation something on all but two of the nine chains.
    """
    dearer = []
    for (case, budget), objective in OBJECTIVES.items():
        solution = solve(chain_of(case), budget * MIB, "monet")
        assert solution.status is Status.OPTIMAL
        assert present(solution.cost) <= objective + 1e-6
        if present(solution.cost) < objective - 1e-6:
            dearer.append(budget)
    assert dearer == [3] * 7


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(4)))
@pytest.mark.parametrize("make", [random_graph, in_place], ids=["random", "in place"])
def test_the_joint_problem_finds_the_optimum_of_exhaustive_search(make, seed):
    graph = make(seed, layers=3 + seed % 2)
    for share in (0.7, 0.85, 1.5):
        budget = int(share * checkpoint_all_peak(graph))
        assert exactly(graph, budget) == pytest.approx(frontier_optimum(graph, budget))


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(4)))
@pytest.mark.parametrize("make", [random_graph, in_place], ids=["random", "in place"])
def test_so_does_the_search_which_never_costs_more_than_default_implementations(make, seed):
    graph = make(seed, layers=4)
    budget = int((0.8, 1.0, 1.5)[seed % 3] * checkpoint_all_peak(graph))
    cost = solve(graph, budget, "monet").cost or math.inf  # what it runs in place is checked: see `checker.replay`
    assert cost == pytest.approx(frontier_optimum(graph, budget))
    assert cost <= (solve(default_selection(graph).graph, budget).cost or math.inf) * (1 + 1e-9)


def test_that_rule_makes_schedules_dearer():
    graphs = [in_place(seed, 3) for seed in range(6)]
    budgets = [2 * checkpoint_all_peak(graph) for graph in graphs]  # so much that only the rule keeps from the cheapest
    with_rule = [exactly(graph, budget) for graph, budget in zip(graphs, budgets, strict=True)]
    without = [exactly(anywhere(graph), budget) for graph, budget in zip(graphs, budgets, strict=True)]
    assert all(one >= other - 1e-9 for one, other in zip(with_rule, without, strict=True))
    assert sum(one > other + 1e-9 for one, other in zip(with_rule, without, strict=True)) >= 2


def test_only_chosen_implementations_run():
    graph = monet_chain(6, "both")
    either = exactly(graph, 3 * MIB)
    for name in ("all", "exact", "out"):
        assert solve(graph, 3 * MIB, "monet", implementations=name).cost == either
    of_input = exactly(monet_chain(6, "in"), 3 * MIB)
    assert solve(graph, 3 * MIB, "monet", implementations="in").cost == of_input > either
    with pytest.raises(UnknownNameError, match="'inn'"):
        solve(graph, 3 * MIB, "monet", implementations=["inn"])


@pytest.mark.parametrize("step", thorough_but([3, 1], 3))
def test_the_restriction_costs_what_monet_does(step):
    for (case, budget), objective in list(OBJECTIVES.items())[::step]:
        problem = PaperProblem(CondensedChoices.of(chain_of(case)), budget * MIB, Milp(relaxed=True))
        assert problem.build(Limits())
        schedule, bound = problem.solve(Limits())
        assert schedule is not None
        assert bound == pytest.approx(objective)


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(3)))
def test_the_restriction_is_never_cheaper_and_the_bounds_of_local_memory_enclose(seed):
    graph = random_graph(seed, layers=5)
    problem = CondensedChoices.of(graph)
    budget = int(0.9 * checkpoint_all_peak(graph))
    costs = []
    for from_above in (False, True):
        paper = PaperProblem(problem, budget, Milp(relaxed=True), from_above)
        assert paper.build(Limits())
        costs.append(paper.solve(Limits())[1])
    assert costs[0] <= costs[1] + 1e-6
    joint = solve(graph, budget, "monet")
    restricted = solve(graph, budget, "monet-paper")
    if restricted.schedule is not None:
        assert present(restricted.lower_bound) <= present(joint.cost) + 1e-6  # it is one of all schedules
        assert present(joint.cost) <= restricted.schedule.cost + 1e-6
        assert (restricted.schedule.R[:, graph.is_backward] > 0).sum(axis=0).max() == 1


@pytest.mark.parametrize("strategy", ["monet", "monet-paper"])
def test_what_no_implementation_fits_into_is_infeasible(strategy):
    assert solve(monet_chain(4, "both"), 2 * MIB, strategy).status is Status.INFEASIBLE


class Joint(JointSearch):
    """The search of the joint problem, which does not take the road of the plain one."""

    def _solve_plain(self) -> bool:
        return False


@pytest.mark.parametrize("step", thorough_but([4, 1], 4))
def test_with_one_implementation_each_monet_has_the_optima_of_the_reference_by_either_of_its_roads(
    step, reference, small_graph
):
    chains = [entry for entry in reference("optimal_linear.json") if entry["graph"] in ("linear4", "linear6")]
    problems = [(linear(entry["n"] // 2), entry["budget"], entry["optimum"]) for entry in chains[::step]]
    small = reference("exact_small_graphs.json")[::step]
    problems += [(small_graph(entry), entry["budget"], entry["exact_global"]) for entry in small]
    for graph, budget, optimum in problems:
        monet = solve(graph, budget, "monet")
        assert (monet.status, monet.cost, monet.lower_bound) == (Status.OPTIMAL, optimum, optimum), graph.name
        answer = Joint(graph, budget, Limits(60, threads=2)).run()
        assert (present(answer.schedule).cost, answer.lower_bound) == pytest.approx((optimum, optimum)), graph.name


@pytest.mark.parametrize("share", thorough_but([0.9, 0.8], 0.9))
def test_choices_make_schedules_cheaper_than_checkmates(residual, share):
    budget = int(share * checkpoint_all_peak(residual))
    bound = present(solve(default_selection(residual).graph, budget, "optimal").lower_bound)
    heard: list[Progress] = []

    def is_good() -> bool:
        return any(told.cost is not None and told.cost < bound and (told.gap or 0) < 0.01 for told in heard[-1:])

    joint = solve(residual, budget, "monet", time_limit=60, on_progress=heard.append, cancelled=is_good)
    assert present(joint.cost) < bound  # no schedule of default implementations is as cheap
    assert present(joint.gap) < 0.01


def test_a_schedule_comes_before_the_bound_both_only_improve_and_a_cancelled_search_returns_what_it_has(residual):
    reports: list[Progress] = []

    def is_bounded() -> bool:
        return any(report.cost is not None for report in reports) and "moments" in reports[-1].doing

    budget = int(0.8 * checkpoint_all_peak(residual))
    solution = solve(residual, budget, "monet", time_limit=600, on_progress=reports.append, cancelled=is_bounded)
    costs = [report.cost for report in reports if report.cost is not None]
    bounds = [report.lower_bound for report in reports if report.lower_bound is not None]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    first_schedule = next(i for i, report in enumerate(reports) if report.cost is not None)
    first_relaxed = next(i for i, report in enumerate(reports) if "moments" in report.doing)
    assert first_schedule < first_relaxed
    assert (solution.status, solution.cost) == (Status.FEASIBLE, costs[-1])


@pytest.mark.parametrize("share", thorough_but([0.9, 0.8], 0.8))
def test_checkmates_walks_come_first_so_choices_never_cost_more(residual, share):
    budget = int(share * checkpoint_all_peak(residual))
    heard: list[str] = []
    stop = {"report": lambda told: heard.append(told.doing), "cancelled": lambda: "bounding" in " ".join(heard)}
    limits = Limits(20, threads=1, **stop)
    search = JointSearch(residual, budget, limits)
    search.run()
    plain = plan_schedule(CondensedGraph.of(default_selection(residual).graph), budget, 20)
    assert search.incumbent.cost <= present(plain).cost
    assert heard[0] == "planning with the default implementations"


def test_everything_fits_into_a_large_budget_in_the_cheapest_implementations(residual):
    solution = solve(residual, 4 * checkpoint_all_peak(residual), "monet", time_limit=60)
    assert solution.status is Status.OPTIMAL
    assert present(solution.schedule).recomputations == 0
    assert present(solution.schedule).overhead <= 1 + 1e-9


@pytest.mark.parametrize("seed", thorough_but(range(6), 0))
def test_the_steps_for_large_graphs_never_cost_more_than_default_implementations(seed):
    graph = in_place_only(overwriting(random_graph(seed, layers=6)))
    budget = int(0.85 * checkpoint_all_peak(graph))
    plain = solve(default_selection(graph).graph, budget, "optimal")
    # no integer program of the whole helps
    answer = JointSearch(graph, budget, Limits(600, threads=1), exact_up_to=0, exact_beside=0).run()
    cost = math.inf if answer.schedule is None else answer.schedule.cost
    assert cost <= (plain.cost or math.inf) * (1 + 1e-9)


def test_a_search_begins_with_what_is_known_and_is_never_worse():
    graph = monet_chain(6, "both")
    known = solve(graph, 3 * MIB, "monet")
    answer = improve_monet(graph, 3 * MIB, Answer(known.schedule, known.lower_bound), Limits(0.0))
    assert (answer.schedule, answer.lower_bound) == (known.schedule, known.lower_bound)


def test_a_sweep_shares_schedules_and_bounds_from_the_least_that_choices_fit_into_and_is_kept(
    thread, tmp_path, monkeypatch
):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    graph, names = monet_chain(6, "both"), ["monet", "monet-paper"]
    curve = sweep(graph, 4, names, thread, time_limit=60, cache=True)
    joint, restricted = ([point for point in curve.solutions if point.strategy == name] for name in names)
    costs, bounds = [point.cost or math.inf for point in joint], [point.lower_bound or 0.0 for point in joint]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds, reverse=True)
    assert all(point.status is Status.OPTIMAL for point in joint)
    assert min(point.budget for point in joint) == 3 * MIB
    assert all(cost <= (other.cost or math.inf) for cost, other in zip(costs, restricted, strict=True))
    with Sweep(graph, [point.budget for point in joint], ["monet"], thread, time_limit=60, cache=True) as again:
        list(again)
    assert again.from_cache == len(joint)
    assert [point.cost for point in again.frontier().solutions] == costs


def test_a_sweep_never_takes_the_cost_of_default_implementations_for_a_bound():
    """A fast implementation makes schedules that cost less than keeping everything."""
    seeds = [seed for seed in range(20) if "name='fast'" in str(random_graph(seed).operations)]
    graph = random_graph(seeds[0])
    points = SweepPoints(graph)
    points.begin(["monet", "checkpoint-all"], [checkpoint_all_peak(graph), 10**6], None)
    cheapest = present(solve(graph, 10**6, "monet").cost)
    assert cheapest < graph.total_cost
    found = points.frontier(False, 0.0)
    assert all((point.lower_bound or 0.0) <= cheapest for point in found.solutions)
    assert all(point.status is not Status.OPTIMAL for point in found.solutions)


GIB = 2**30


def planned(graph: Graph, budget: int) -> Schedule | None:
    """A schedule of default implementations, or None."""
    selection = default_selection(graph)
    plain = plan_schedule(CondensedGraph.of(selection.graph), budget, 10)
    return None if plain is None else selection.lift(plain)


@pytest.mark.parametrize("seed", thorough_but(range(10), *range(3)))
def test_windows_end_at_the_optimum_of_small_graphs(seed):
    graph = random_graph(seed, layers=4)
    budgets = [int(share * checkpoint_all_peak(graph)) for share in (0.9, 1.0)]
    schedule, budget = next((found, budget) for budget in budgets if (found := planned(graph, budget)) is not None)
    windows, limits = WindowSearch(CondensedChoices.of(graph), budget), Limits(300)
    costs = [schedule.cost]
    while not windows.nothing_left(schedule.cost):
        schedule = windows.advance(schedule, limits)
        costs.append(schedule.cost)
        assert schedule.violation() is None
        assert Plan.of(schedule).peak <= budget
    assert costs == sorted(costs, reverse=True)
    assert schedule.cost == pytest.approx(frontier_optimum(graph, budget), rel=1e-4)


BUDGET = 6 * GIB


@pytest.fixture(scope="module")
def vgg16() -> CondensedChoices:
    return CondensedChoices.of(p100_graph("vgg16", "icmn"))


@pytest.fixture(scope="module")
def smallest_choice(vgg16) -> Schedule:
    """The choice that needs the least memory; it costs more than twice the optimum, 1.49129 s, as MONeT has it."""
    selection = restricted_to(vgg16.graph, make_consistent(vgg16.graph, smallest(Tables(vgg16))))
    return selection.lift(present(plan_schedule(CondensedGraph.of(selection.graph), BUDGET, 60)))


def test_choosing_again_finds_the_choice_that_goes_with_a_schedule(vgg16, smallest_choice):
    assert smallest_choice.cost > 3
    again = WindowSearch(vgg16, BUDGET).choose_again(smallest_choice, Limits(600))
    assert again.cost < 1.75
    assert again.violation() is None
    assert Plan.of(again).peak <= BUDGET


def test_other_budgets_choose_otherwise(residual):
    tables, budget = Tables(CondensedChoices.of(residual)), int(0.6 * checkpoint_all_peak(residual))
    choices = list(choices_near(tables, budget, (0.9, 1.2, 1.6), Limits(600), 30_000))
    assert len({tuple(sorted(choice.items())) for choice in choices}) == len(choices) == 3
    assert list(choices_near(tables, budget, (0.85, 1.0), Limits(0.0), 30_000)) == []


@pytest.mark.thorough
def test_windows_find_what_gurobi_found_on_vgg16(vgg16, smallest_choice):
    windows, limits = WindowSearch(vgg16, BUDGET), Limits(3600)
    schedule = windows.choose_again(smallest_choice, limits)
    for _ in range(120):  # windows, which are counted in nodes and not in seconds
        if schedule.cost <= 1.49129 * 1.002:
            break
        schedule = windows.advance(schedule, limits)
    assert schedule.cost <= 1.49129 * 1.002
    assert Plan.of(schedule).peak <= BUDGET
