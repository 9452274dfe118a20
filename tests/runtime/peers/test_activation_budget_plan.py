"""What PyTorch's partitioner chooses is a plan on our graph, a schedule, too, and gives the numbers of eager."""

from __future__ import annotations

import dataclasses
import operator

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.captured_program import Program
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.checker import replay
from remat_explorer.errors import ExecutionError, UnknownNameError
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.min_cut_partitioner import partition
from remat_explorer.runtime.peers import pytorch_budget_plan, schedule_of
from remat_explorer.runtime.peers.activation_budget_plan import first_equal_calls
from tests.runtime.kinds_of_models import KINDS, Case, Made, linear, x
from tests.thorough import thorough_but

WHOLE = CaptureOptions(contract=False, split_convolution_backward=False)
BUDGETS = (1.0, 0.5, 0.1, 0.0)


def program_of(case: Case, options: CaptureOptions = WHOLE) -> Program:
    return trace(case.model, case.args, case.kwargs, case.loss, options=options)


def residual(options: CaptureOptions = WHOLE) -> Program:
    loaded = rx.models.load("residual_net", batch=4, image=16)
    return trace(loaded.module, loaded.args, options=options)


def runs(plan: Plan) -> list[int]:
    return [statement.operation for statement in plan.statements if isinstance(statement, Compute)]


@pytest.mark.parametrize("budget", thorough_but(BUDGETS, 0.5, 0.0))
def test_the_plan_runs_what_the_partitioner_lists_in_its_order(budget):
    program = residual()
    calls = [[call.node for call in body.calls if call.target is not operator.getitem] for body in program.bodies]
    operation_of = {own[-1].name: k for k, own in enumerate(calls)}  # views of its inputs come before it
    listed = [name for part in partition(program.module, budget) for name in part]
    plan = pytorch_budget_plan(program, budget)
    assert runs(plan) == [operation_of[name] for name in listed if name in operation_of]
    replay(plan)


@pytest.mark.parametrize("budget", thorough_but(BUDGETS, 1.0, 0.1))
def test_the_plan_is_a_schedule_with_the_same_peak(budget):
    program = residual()
    plan = pytorch_budget_plan(program, budget)
    schedule = schedule_of(plan)
    assert schedule is not None
    assert rx.check(program.graph, schedule.R, schedule.S).peak == plan.peak
    assert (schedule.recomputations > 0) == (budget < 1)


def test_contracted_graphs_are_planned_too():
    for options in (CaptureOptions(), CaptureOptions(contract=False)):
        plan = pytorch_budget_plan(residual(options), 0.25)
        replay(plan)
        assert len(runs(plan)) > plan.graph.n


@pytest.mark.parametrize("kind", ["tied weights and padding", "bfloat16 with dropout", "in-place operations", "norms"])
def test_every_kind_of_model_is_planned(kind):
    program = program_of(KINDS[kind]())
    for budget in BUDGETS:
        replay(pytorch_budget_plan(program, budget))


def test_a_call_that_the_partitioner_merged_runs_again_where_its_twin_does():
    def forward(self, x):
        y = self.layer(x)
        return self.last(torch.exp(y) * torch.sin(y)) + torch.exp(y).square().mean()  # exp(y), twice

    program = program_of(Case(Made(forward, layer=linear(), last=linear()), (x(64, 8),)))
    equal = first_equal_calls(program.module)
    merged = [name for name, first in equal.items() if name != first]
    assert merged
    again = next(k for k, node in enumerate(program.graph.operations) if node.name == "exp (2)")
    first = next(k for k, node in enumerate(program.graph.operations) if node.name == "exp")
    listed = [name for part in partition(program.module, 0.0) for name in part]
    assert not set(merged) & set(listed)
    order = runs(pytorch_budget_plan(program, 0.0))
    assert order.count(first) == 2
    assert order.count(again) == 2
    replay(pytorch_budget_plan(program, 0.0))


def test_the_program_is_not_changed_by_planning():
    program = residual()
    before = str(program.module.graph)
    pytorch_budget_plan(program, 0.5)
    assert str(program.module.graph) == before


def test_a_profiled_graph_gives_the_same_plan_with_workspace():
    program = residual()
    operations = tuple(
        dataclasses.replace(
            node, implementations=tuple(dataclasses.replace(way, workspace=10**9) for way in node.implementations)
        )
        for node in program.graph.operations
    )
    larger = dataclasses.replace(program, graph=dataclasses.replace(program.graph, operations=operations))
    plan, other = pytorch_budget_plan(program, 0.5), pytorch_budget_plan(larger, 0.5)
    assert runs(plan) == runs(other)
    assert other.peak > 10**9 > plan.peak


@pytest.mark.parametrize("solver", ["dp", "greedy"])
def test_solvers_of_the_knapsack(solver):
    program = residual()
    assert len(runs(pytorch_budget_plan(program, 0.3, solver))) > program.graph.n


def test_wrong_settings_are_refused():
    program = program_of(Case(nn.Sequential(linear(), linear()), (x(),)))
    with pytest.raises(ExecutionError, match=r"a share from 0 to 1, not -0\.5"):
        pytorch_budget_plan(program, -0.5)
    with pytest.raises(UnknownNameError, match="did you mean 'greedy'"):
        pytorch_budget_plan(program, 0.5, "gredy")
