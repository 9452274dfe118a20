"""PyTorch's partitioner as a strategy: it keeps what torch keeps, on any graph, and its budget is no peak."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import SolverError, UnknownNameError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.plan import Plan
from remat_explorer.runtime.min_cut_partitioner import (
    BUDGETS,
    SOLVERS,
    aten,
    joint_graph,
    operators_of,
    pytorch_budget_candidates,
)
from remat_explorer.runtime.peers import pytorch_budget_plan, schedule_of
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.solution import Status
from tests.thorough import thorough_but

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
    assert set(flops) <= {node.name for node in operations}
    return dataclasses.replace(program, graph=dataclasses.replace(program.graph, operations=operations))


@pytest.mark.parametrize("knapsack", SOLVERS)
@pytest.mark.parametrize("budget", thorough_but([1.0, 0.8, 0.6, 0.35, 0.1, 0.0], 0.6, 0.1))
def test_what_runs_again_is_what_torch_runs_again_in_the_model_that_the_graph_is_of(traced, budget, knapsack):
    expected = schedule_of(pytorch_budget_plan(traced, budget, knapsack))
    (candidate,) = pytorch_budget_candidates(traced.graph, budget, knapsack)
    assert expected is not None
    assert recomputed(candidate.schedule) == recomputed(expected)
    assert (len(recomputed(expected)) > 0) == (budget < 1)


def test_the_ends_of_the_knob_keep_the_same_as_in_a_residual_network():
    loaded = rx.models.load("residual_net", batch=4, image=16)
    program = trace(loaded.module, loaded.args, options=WHOLE)
    for budget in (1.0, 0.0):
        expected = schedule_of(pytorch_budget_plan(program, budget))
        (candidate,) = pytorch_budget_candidates(program.graph, budget, "dp")
        assert expected is not None
        assert recomputed(candidate.schedule) == recomputed(expected)


@pytest.mark.parametrize("name", ["captured/vgg16", "captured/unet", "graphs/keras_VGG16", "graphs/linear16"])
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


def test_the_peak_rises_again_for_small_budgets_as_in_the_reference(data, vgg16):
    """In PyTorch's own graphs, too, the backward pass peaks least in the middle: the budget bounds no peak."""
    reference = json.loads((data / "pytorch_memory_budget.json").read_text())
    curves = [[one["bwd_liveness_peak"] for one in case["rows"]] for case in reference if case["solver"] == "dp"]
    candidates = pytorch_budget_candidates(vgg16, knapsack="dp")
    curves.append([Plan.of(candidate.schedule).peak for candidate in candidates])
    for peaks in curves:
        assert min(peaks) < 0.8 * min(peaks[0], peaks[-1])


def test_a_budget_of_0_runs_the_forward_pass_twice_as_in_the_reference(data, vgg16):
    reference = json.loads((data / "pytorch_memory_budget.json").read_text())[0]["rows"]
    assert reference[0]["budget"] == 0
    assert reference[0]["bwd_flops"] - reference[-1]["bwd_flops"] == reference[0]["fwd_flops"]
    (candidate,) = pytorch_budget_candidates(vgg16, 0)
    forward = vgg16.costs[~vgg16.is_backward]
    again = candidate.schedule.cost - vgg16.total_cost
    assert forward.sum() - forward[-1] <= again + 1e-9 <= forward.sum() + 2e-9  # the loss itself is kept


def test_solve_returns_the_cheapest_that_fits_by_its_peak(vgg16):
    solution = rx.solve(vgg16, "80%", "pytorch-budget", time_limit=600)
    all_of_them = [one.schedule for one in pytorch_budget_candidates(vgg16)]
    fitting = [schedule.cost for schedule in all_of_them if Plan.of(schedule).peak <= solution.budget]
    assert 0 < len(fitting) < len(all_of_them)
    assert (solution.status, solution.cost) == (Status.FEASIBLE, min(fitting))
    assert solution.lower_bound is None
    assert solution.peak is not None
    assert solution.peak <= solution.budget


def test_nothing_is_claimed_where_nothing_fits(vgg16):
    solution = rx.solve(vgg16, "70%", "pytorch-budget", activation_memory_budget=0.02, knapsack="greedy")
    assert (solution.status, solution.schedule) == (Status.UNKNOWN, None)


def test_labels_name_the_budget_and_the_knapsack_and_no_schedule_comes_twice():
    found = list(pytorch_budget_candidates(rx.linear(8)))
    assert found[0].label == "activation_memory_budget=1 (dp)"
    labels = {f"activation_memory_budget={budget:g} ({solver})" for budget in BUDGETS for solver in SOLVERS}
    assert {one.label for one in found} <= labels
    assert len({one.schedule.R.tobytes() for one in found}) == len(found)


def test_operators_are_told_from_names_and_unknown_names_count_as_compute_intensive(vgg16):
    operators = operators_of(vgg16)
    by_name = {node.name: found for node, found in zip(vgg16.operations, operators, strict=True)}
    assert by_name["convolution"] is aten.convolution
    assert by_name["native_dropout_1"] is aten.native_dropout
    assert by_name["threshold_backward"] is aten.threshold_backward
    assert by_name["max_pool2d_with_indices"] is aten.embedding
    assert set(operators_of(rx.linear(3))) == {aten.mm}


def test_a_name_of_a_cheap_operator_alone_does_not_make_the_budget_meaningless():
    chain = rx.linear(8)
    named = tuple(dataclasses.replace(node, name="add") if k == 3 else node for k, node in enumerate(chain.operations))
    schedules = [one.schedule.R for one in pytorch_budget_candidates(chain, knapsack="dp")]
    renamed = pytorch_budget_candidates(dataclasses.replace(chain, operations=named), knapsack="dp")
    assert [one.schedule.R.tolist() for one in renamed] == [R.tolist() for R in schedules]


def test_zero_bytes_several_outputs_and_values_that_nobody_reads_are_no_obstacle():
    graph = Graph(
        "odd",
        (
            Value("a", 4),
            Value("mask", 0),
            Value("unread", 2),
            Value("loss", 1, True),
            Value("g", 4),
            Value("h", 1, True),
        ),
        (
            operation("split", "forward", [], [0, 1, 2], 3.0),
            operation("end", "forward", [0], [3], 1.0),
            operation("back", "backward", [0, 1], [4], 2.0),
            operation("more", "backward", [4, 3], [5], 1.0),
        ),
        resident_bytes=7,
    )
    assert joint_graph(graph).forward_results == 3  # the mask, what nobody reads, and the loss
    for candidate in pytorch_budget_candidates(graph):
        rx.check(graph, candidate.schedule.R, candidate.schedule.S)
    assert rx.solve(graph, 100, "pytorch-budget", knapsack="greedy").cost == graph.total_cost


def test_a_graph_without_a_backward_pass_has_one_schedule():
    graph = Graph("forward", (Value("a", 4),), (operation("f", "forward", [], [0], 1.0),))
    assert [(one.label, one.schedule.cost) for one in pytorch_budget_candidates(graph)] == [("", 1.0)]


@pytest.mark.parametrize("budget", [-0.1, 1.5, float("nan"), "half", True])
def test_a_budget_that_is_no_share_is_refused_and_quoted(budget):
    with pytest.raises(SolverError, match=f"activation_memory_budget is {budget!r}; expected a share"):
        rx.solve(rx.linear(4), 100, "pytorch-budget", activation_memory_budget=budget)


def test_an_unknown_knapsack_solver_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'greedy'"):
        rx.solve(rx.linear(4), 100, "pytorch-budget", knapsack="gredy")


def test_the_settings_of_torch_are_as_they_were_afterwards():
    from torch._functorch import config

    before = (config.activation_memory_budget, config.activation_memory_budget_solver, config.cse)
    list(pytorch_budget_candidates(rx.linear(4)))
    assert (config.activation_memory_budget, config.activation_memory_budget_solver, config.cse) == before


def test_the_registry_has_its_row_and_its_knob():
    method = STRATEGIES["pytorch-budget"]
    assert method.knob is not None
    assert tuple(method.knob.values(rx.linear(4))) == BUDGETS
    assert method.arguments == ("activation_memory_budget", "knapsack")
    assert method.candidates is not None
    assert next(method.candidates(rx.linear(4), activation_memory_budget=1)).schedule.cost == 9
