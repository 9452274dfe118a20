"""PyTorch's partitioner as a strategy: it keeps what torch keeps, on any graph, and its budget is no peak."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._functorch import config

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.plan import Plan
from remat_explorer.runtime.min_cut_partitioner import BUDGETS, SOLVERS, aten, operators_of, pytorch_budget_candidates
from remat_explorer.runtime.peers import pytorch_budget_plan, schedule_of
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from tests.thorough import thorough, thorough_but

WHOLE = CaptureOptions(contract=False, split_convolution_backward=False)


@pytest.fixture(scope="module")
def vgg16(data: Path) -> Graph:
    return Graph.load(str(data / "captured" / "vgg16.json"))


def recomputed(schedule: Schedule) -> set[int]:
    stages, operations = np.nonzero(schedule.R)
    return set(operations[stages != operations].tolist())


@pytest.fixture(scope="module")
def traced():
    """A model whose linear layers all differ, with the partitioner's own estimate of costs, and few parameters."""
    widths = [16, 20, 28, 18, 36, 24, 40, 22, 16]
    layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.Tanh())]
    program = trace(nn.Sequential(*layers), (torch.ones(4096, widths[0]),), options=WHOLE)
    flops = {f"{2 * i} linear": 2.0 * 4096 * a * b for i, (a, b) in enumerate(itertools.pairwise(widths))}
    operations = tuple(
        dataclasses.replace(node, implementations=(dataclasses.replace(node.default, cost=flops.get(node.name, 1.0)),))
        for node in program.graph.operations
    )
    return dataclasses.replace(program, graph=dataclasses.replace(program.graph, operations=operations))


@pytest.mark.parametrize("knapsack", SOLVERS)
@pytest.mark.parametrize("budget", thorough_but([1.0, 0.8, 0.6, 0.35, 0.1, 0.0], 0.6, 0.1))
def test_what_runs_again_is_what_torch_runs_again_in_the_model_that_the_graph_is_of(traced, budget, knapsack):
    expected = schedule_of(pytorch_budget_plan(traced, budget, knapsack))
    (candidate,) = pytorch_budget_candidates(traced.graph, budget, knapsack)
    assert expected is not None
    assert recomputed(candidate.schedule) == recomputed(expected)
    assert (len(recomputed(expected)) > 0) == (budget < 1)


@pytest.mark.parametrize("name", [thorough("captured/vgg16"), "captured/unet", "graphs/keras_VGG16"])
def test_every_schedule_passes_the_checker_and_keeps_less_for_less_budget(data, name):
    graph = Graph.load(str(data / f"{name}.json"))
    schedules = [one.schedule for one in pytorch_budget_candidates(graph, knapsack="dp")]
    assert len(schedules) > 5
    for schedule in schedules:
        assert schedule.is_frontier_advancing
        rx.check(graph, schedule.R, schedule.S)
        assert not any(graph.is_backward[k] for k in recomputed(schedule))
    costs = [schedule.cost for schedule in schedules]
    assert costs[0] == pytest.approx(graph.total_cost)
    assert costs == sorted(costs)


def test_for_small_budgets_the_peak_rises_again_and_forward_runs_twice(vgg16):
    schedules = [candidate.schedule for candidate in pytorch_budget_candidates(vgg16, knapsack="dp")]
    peaks = [Plan.of(schedule).peak for schedule in schedules]
    assert min(peaks) < 0.8 * min(peaks[0], peaks[-1])
    forward = vgg16.costs[~vgg16.is_backward]
    again = schedules[-1].cost - vgg16.total_cost
    assert forward.sum() - forward[-1] <= again + 1e-9 <= forward.sum() + 2e-9  # the loss itself is kept


def test_solve_returns_the_cheapest_that_fits_by_its_peak_and_claims_nothing_where_nothing_fits(vgg16):
    solution = rx.solve(vgg16, "80%", "pytorch-budget", time_limit=600, knapsack="dp")
    all_of_them = [one.schedule for one in pytorch_budget_candidates(vgg16, knapsack="dp")]
    fitting = [schedule.cost for schedule in all_of_them if Plan.of(schedule).peak <= solution.budget]
    assert 0 < len(fitting) < len(all_of_them)
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.FEASIBLE, min(fitting), None)
    solution = rx.solve(vgg16, "70%", "pytorch-budget", activation_memory_budget=0.02, knapsack="greedy")
    assert (solution.status, solution.schedule) == (Status.UNKNOWN, None)


def test_labels_name_the_budget_and_the_knapsack_and_no_schedule_comes_twice_and_torch_keeps_its_settings():
    before = (config.activation_memory_budget, config.activation_memory_budget_solver, config.cse)
    found = list(pytorch_budget_candidates(rx.linear(8)))
    assert found[0].label == "activation_memory_budget=1 (dp)"
    labels = {f"activation_memory_budget={budget:g} ({solver})" for budget in BUDGETS for solver in SOLVERS}
    assert {one.label for one in found} <= labels
    assert len({one.schedule.R.tobytes() for one in found}) == len(found)
    assert (config.activation_memory_budget, config.activation_memory_budget_solver, config.cse) == before


def test_operators_are_told_from_names_and_unknown_names_count_as_compute_intensive(vgg16):
    found = dict(zip([node.name for node in vgg16.operations], operators_of(vgg16), strict=True))
    assert (found["convolution"], found["native_dropout_1"]) == (aten.convolution, aten.native_dropout)
    assert set(operators_of(rx.linear(3))) == {aten.mm}


def test_a_name_of_a_cheap_operator_alone_does_not_make_the_budget_meaningless():
    chain = rx.linear(8)
    named = tuple(dataclasses.replace(node, name="add") if k == 3 else node for k, node in enumerate(chain.operations))
    schedules = [one.schedule.R for one in pytorch_budget_candidates(chain, knapsack="dp")]
    renamed = pytorch_budget_candidates(dataclasses.replace(chain, operations=named), knapsack="dp")
    assert [one.schedule.R.tolist() for one in renamed] == [R.tolist() for R in schedules]


def test_zero_bytes_several_outputs_values_that_nobody_reads_and_no_backward_pass_are_no_obstacle():
    values = [Value("a", 4), Value("mask", 0), Value("unread", 2), Value("loss", 1, True), Value("g", 4)]
    operations = (
        operation("split", "forward", [], [0, 1, 2], 3.0),
        operation("end", "forward", [0], [3], 1.0),
        operation("back", "backward", [0, 1], [4], 2.0),
        operation("more", "backward", [4, 3], [5], 1.0),
    )
    graph = Graph("odd", (*values, Value("h", 1, True)), operations, resident_bytes=7)
    for candidate in pytorch_budget_candidates(graph):
        rx.check(graph, candidate.schedule.R, candidate.schedule.S)
    assert rx.solve(graph, 100, "pytorch-budget", knapsack="greedy").cost == graph.total_cost
    graph = Graph("forward", (Value("a", 4),), (operation("f", "forward", [], [0], 1.0),))
    assert [(one.label, one.schedule.cost) for one in pytorch_budget_candidates(graph)] == [("", 1.0)]


def test_a_budget_that_is_no_share_and_an_unknown_knapsack_solver_are_refused():
    for budget in (-0.1, 1.5, float("nan"), "half", True):
        with pytest.raises(SolverError, match=f"activation_memory_budget is {budget!r}; expected a share"):
            rx.solve(rx.linear(4), 100, "pytorch-budget", activation_memory_budget=budget)
    with pytest.raises(UnknownNameError, match="did you mean 'greedy'"):
        rx.solve(rx.linear(4), 100, "pytorch-budget", knapsack="gredy")
