"""The least memory: the smallest budget, explained and known by its name, and the least memory at an overhead."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import remat_explorer as rx
from remat_explorer.checker import check_schedule
from remat_explorer.errors import QuantityError, UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation, Value, operation
from remat_explorer.instances import linear
from remat_explorer.quantities import parse_budget
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import checkpoint_all_peak, memory_at_overhead, minimum_budget
from remat_explorer.solvers.condensed_graph import largest_operation
from remat_explorer.solvers.memory.minimum_budget import fall_back_on_smallest, smallest_known
from remat_explorer.solvers.memory_at_overhead.memory_search import MemorySearch
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables
from remat_explorer.solvers.monet.relaxation_with_choices import LeastMemory
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.solver_interface import Limits
from tests.solvers.exhaustive import frontier_optimum, least_peak
from tests.solvers.helpers import present, simple_graph
from tests.solvers.monet.choice_graphs import MIB, monet_chain, normalized_chain
from tests.solvers.monet.choice_graphs import random_graph as choice_graph
from tests.thorough import thorough_but


def test_the_bound_counts_inputs_outputs_workspace_resident_and_earlier_persistent_bytes():
    graph = Graph(
        "step",
        (Value("x", 10), Value("statistics", 20, persistent=True), Value("y", 40), Value("unread", 80)),
        (
            operation("f", "forward", [], [0, 1], 1),
            operation("g", "forward", [0], [2, 3], 1, workspace=160),
            operation("h", "forward", [2], [], 1),
        ),
        resident_bytes=320,
    )
    found = minimum_budget(graph)
    assert (found.lower_bound, found.operation, found.name) == (630, 1, "g")
    assert found.values == (0, 1, 2, 3)
    assert found.known_feasible == 630


def test_the_explanation_names_the_operation_its_bytes_and_a_budget_worth_trying():
    found = minimum_budget(linear(8))
    assert found.proven
    text = found.explain()
    assert "'v9' alone needs 3 B" in text
    assert "The smallest budget worth trying is 3 B, 30% of keeping everything" in text
    below = found.explain_infeasible("optimal", 2)
    assert below.startswith("no schedule that goes stage by stage fits into 2 B: 'v9' alone needs 3 B")
    assert "worth trying is 3 B" in below
    within = found.explain_infeasible("checkpoint-all", 5)
    assert within.startswith("'checkpoint-all' has no schedule within 5 B, but there is one that needs 3 B")
    between = replace(found, known_feasible=6).explain_infeasible("optimal", 4)
    assert between.startswith("'optimal' has no schedule within 4 B, which is proven. The smallest budget worth trying")
    unknown = found.explain_unknown("checkmate-ilp", 2, "the time limit of 1.0 s")
    assert "within 2 B before it was ended by the time limit of 1.0 s" in unknown
    assert "'v9' alone needs 3 B" in unknown
    worth = "but there is one that needs 3 B: try the strategy 'optimal', or a larger time limit"
    assert worth in found.explain_unknown("checkmate-ilp", 3, "the time limit of 1.0 s")


@pytest.mark.parametrize("name", ["vgg16", "mobilenet_v1"])
def test_captured_networks_have_a_known_schedule_close_to_the_bound(name, captured):
    graph = captured(name)
    found = minimum_budget(graph)
    assert found.lower_bound <= found.known_feasible <= 1.25 * found.lower_bound
    check_schedule(found.schedule, found.known_feasible)
    workspace = graph.operations[found.peak_operation].default.workspace
    alive = int(graph.value_bytes[list(found.alive)].sum())
    assert graph.resident_bytes + alive + workspace == found.known_feasible
    assert found.schedule.R[found.peak_stage, found.peak_operation]


def test_bounds_hold_and_are_mostly_equal_to_the_smallest_budget_on_random_graphs(random_graph, overwriting_graph):
    equal = proven = 0
    for seed in range(6):
        for graph in (random_graph(seed, layers=3), overwriting_graph(seed, layers=3)):
            least = least_peak(graph, checkpoint_all_peak(graph))
            found = minimum_budget(graph, seconds=10)
            assert largest_operation(graph)[1] <= found.needed <= found.lower_bound <= least <= found.known_feasible
            check_schedule(found.schedule, found.known_feasible)
            way = graph.operations[found.operation].default
            size = sum(graph.values[v].bytes for v in found.values)
            again = sum(graph.values[v].bytes for v in way.outputs if graph.persistent[v])  # if it ran before
            assert found.needed - (graph.resident_bytes + size + way.workspace) in (0, again)
            equal += found.lower_bound == least
            proven += found.proven
    assert equal >= 9
    assert proven >= 9


def test_what_waits_while_an_input_is_prepared_counts():
    graph = replace(simple_graph([[], [0], [0], [1, 2]], sizes=[8, 1, 1, 1]), resident_bytes=5)
    found = minimum_budget(graph)
    assert largest_operation(graph)[1] == 5 + 9
    assert (found.lower_bound, found.known_feasible, found.proven) == (5 + 10, 5 + 10, True)
    assert (found.stage, found.operation) in ((3, 1), (3, 2))
    assert sum(graph.values[v].bytes for v in found.values) + found.fixed == found.needed == 15
    assert "when it runs for 'v3', whose other inputs wait" in found.explain()


@pytest.mark.parametrize("seed", thorough_but(range(6), 0, 1))
def test_the_smallest_budget_of_the_joint_problem_is_that_of_exhaustive_search(seed):
    graph = choice_graph(seed)
    found = minimum_budget(graph, 60)
    check_schedule(found.schedule, found.known_feasible)
    assert found.needed <= found.lower_bound
    assert found.proven
    assert math.isfinite(frontier_optimum(graph, found.known_feasible))
    assert math.isinf(frontier_optimum(graph, found.known_feasible - 1))


def test_choices_are_explained_by_the_implementation_that_needs_the_least():
    chain = monet_chain(6, "both")
    found = minimum_budget(chain)
    assert found.known_feasible == 3 * MIB
    assert f", even {found.way!r}" in found.explain()
    own = set(chain.operations[found.operation].implementations[0].outputs)
    assert own <= set(found.values)
    below = found.explain_infeasible("monet", MIB)
    assert below.startswith("no schedule that goes stage by stage fits into 1.00 MiB")
    of_input = minimum_budget(chain, 20, implementations="in")
    assert of_input.known_feasible >= found.known_feasible
    assert {code for _, _, code in of_input.schedule.sequence} == {1}
    assert "try the strategy 'monet'" in found.explain_infeasible("checkpoint-all", 4 * MIB)


@pytest.fixture(scope="module")
def unet(data) -> Graph:
    return Graph.load(str(data / "graphs" / "keras_vgg_unet.json"))


def test_the_smallest_budget_has_a_schedule_even_where_the_search_has_no_time(unet):
    solution = rx.solve(unet, "smallest", time_limit=0.0)
    assert solution.budget == smallest_known(unet)
    assert present(solution.peak) <= solution.budget
    least = minimum_budget(unet)  # asked for before
    assert rx.solve(unet, least, time_limit=0.0).peak == least.known_feasible
    unknown = Solution(linear(8), "optimal", Status.UNKNOWN, least.known_feasible, None, 17.0, 0.0)
    assert fall_back_on_smallest(unknown, least) is unknown


def test_a_known_schedule_with_implementations_that_may_not_be_chosen_is_not_given():
    quick = Implementation((0,), (1,), 1.0, workspace=50)
    slow = Implementation((0,), (1,), 5.0, name="slow", tolerance=1e-3)
    operations = Operation("a", "forward", (Implementation((), (0,), 1.0),)), Operation("b", "backward", (quick, slow))
    graph = Graph("two ways", (Value("a", 10), Value("b", 10, persistent=True)), operations)
    least = minimum_budget(graph)
    unknown = Solution(graph, "monet", Status.UNKNOWN, least.known_feasible, None, 1.0, 0.0)
    assert least.known_feasible == 20
    assert fall_back_on_smallest(unknown, least).peak == 20
    assert fall_back_on_smallest(unknown, least, "exact") is unknown


def test_every_function_that_takes_a_budget_takes_the_smallest():
    graph = linear(8)
    assert rx.solve(graph, " Smallest ").budget == 3
    assert rx.relax(graph, "smallest") == rx.relax(graph, 3)
    frontier = rx.sweep(graph, ["smallest", 6], executor=ThreadPoolExecutor(1))
    assert [point.budget for point in frontier.solutions] == [3, 6]
    assert present(frontier.best("smallest")).peak == 3
    assert rx.ablation(graph, ["smallest"], time_limit=1).budgets == (3,)
    assert rx.solve(graph, "smallest", "checkpoint-all").status is Status.INFEASIBLE  # it cannot use that schedule
    with pytest.raises(QuantityError, match=r"'smallest' is not a number of bytes"):
        parse_budget("smallest", 100)
    with pytest.raises(QuantityError, match='"smallest", the smallest budget with a known schedule'):
        rx.solve(graph, "tiny")


def least_budget(graph: rx.Graph, limit: float) -> int:
    return least_peak(graph, checkpoint_all_peak(graph), limit, splits=1)


@pytest.mark.parametrize("seed", thorough_but(range(12), *range(3)))
@pytest.mark.parametrize("overhead", [0.1, 0.4])
def test_it_equals_exhaustive_search(seed, overhead):
    graph = choice_graph(seed)
    found = memory_at_overhead(graph, overhead, threads=1)
    assert found.lower_bound == found.peak == least_budget(graph, (1 + overhead) * graph.total_cost)
    assert found.schedule.cost <= (1 + overhead) * graph.total_cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", thorough_but(range(12), 0, 1))
def test_without_the_joint_program_the_optimum_is_between_bound_and_peak(seed):
    graph = choice_graph(seed, layers=4)
    limit = 1.25 * graph.total_cost
    search = MemorySearch(graph, limit, Limits(1.0, threads=1), exact_up_to=0)
    search.run()
    assert search.bound <= least_budget(graph, limit) <= search.peak <= checkpoint_all_peak(graph)
    assert check_schedule(search.best, search.peak).cost <= limit * (1 + 1e-9)


@pytest.mark.parametrize("seed", thorough_but(range(20), *range(5)))
def test_no_bound_of_the_relaxation_is_above_the_optimum(seed):
    graph = choice_graph(seed)
    limit, peak = 1.2 * graph.total_cost, checkpoint_all_peak(graph)
    relaxation = LeastMemory(Tables(CondensedChoices.of(graph)), limit, peak)
    fractional = relaxation.improve(Limits(), integral=False).bound
    integral = relaxation.improve(Limits(), integral=True).bound
    assert 0 < fractional <= integral <= least_budget(graph, limit) + 1e-6


def test_what_the_relaxation_would_choose_within_a_budget_leads_to_the_optimum():
    graph = normalized_chain(5)
    limit = 1.06 * graph.total_cost
    exact = MemorySearch(graph, limit, Limits(60, threads=1))
    exact.run()
    assert exact.bound == exact.peak
    limits = Limits(60, threads=1, cancelled=lambda: search.peak <= exact.peak)
    search = MemorySearch(graph, limit, limits, exact_up_to=0)
    search.run()
    assert search.bound <= exact.peak == search.peak
    assert search.peak < memory_at_overhead(graph, 0.06, "optimal", threads=1).peak


def test_on_a_captured_network_better_schedules_are_told_and_the_last_is_returned(residual):
    eager, told = checkpoint_all_peak(residual), []

    def tell(progress):
        assert progress.schedule.cost <= 1.1 * residual.total_cost * (1 + 1e-9)
        told.append(progress.peak)

    low = {"on_progress": tell, "cancelled": lambda: bool(told) and told[-1] < 0.9 * eager}
    joint = memory_at_overhead(residual, 0.1, "monet", time_limit=600, **low)
    assert told == sorted(told, reverse=True)
    assert joint.peak == told[-1] < 0.9 * joint.eager_peak
    assert 0 < joint.lower_bound <= joint.peak
    assert joint.ratio == joint.peak / eager
    assert check_schedule(joint.schedule, joint.peak).cost <= joint.cost_limit * (1 + 1e-9)


def test_another_graph_may_say_what_eager_execution_takes_and_bad_arguments_are_quoted():
    graph, eager = rx.linear(4), rx.linear(8)
    found = memory_at_overhead(graph, 0.0, eager=eager)
    assert found.eager_peak == checkpoint_all_peak(eager)
    assert found.cost_limit == eager.total_cost
    with pytest.raises(QuantityError, match="allow a larger overhead"):
        memory_at_overhead(eager, 0.0, eager=graph)
    with pytest.raises(QuantityError, match=r"-0\.1"):
        memory_at_overhead(graph, -0.1)
    with pytest.raises(UnknownNameError, match="griewank"):
        memory_at_overhead(graph, strategy="griewank")
    cancelled = memory_at_overhead(rx.linear(30), 0.2, cancelled=lambda: True)
    assert cancelled.peak == checkpoint_all_peak(rx.linear(30)) > cancelled.lower_bound


def test_a_budget_between_the_bound_and_the_known_schedule_points_to_the_smallest(unet):
    smallest = minimum_budget(unet, 0.0)
    assert smallest.lower_bound < smallest.known_feasible
    text = smallest.explain_unknown("optimal", smallest.known_feasible - 1)
    assert f"({smallest.known_feasible} bytes)" in text
    assert '"smallest"' in text
