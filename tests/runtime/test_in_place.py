"""Statements that run in place: the storage lives on in the output, and only where the operand dies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.plan import Compute, Plan
from tests.runtime.random_schedules import checkpoint_all, random_schedule, solution_of
from tests.thorough import thorough_but


@pytest.fixture(scope="module")
def net() -> tuple[rx.models.LoadedModel, rx.Graph]:
    model = rx.models.load("residual_net", batch=2, image=16)
    return model, rx.profile(model.graph, model.module, model.args, device="cpu", repeats=1)


def in_place(plan: Plan) -> list[str]:
    statements = [s for s in plan.statements if isinstance(s, Compute) and s.overwrites is not None]
    return [plan.graph.operations[s.operation].name for s in statements]


def moved(program: Program, plan: Plan, model: nn.Module, args: tuple[torch.Tensor, ...]) -> tuple[int, int]:
    """Statements whose output has the storage of an input, and those whose output has a new one."""
    registers = program.bind(model, TrainingStep(model, args).tensors(args))
    same = new = 0
    with torch.no_grad():
        for statement in plan.statements:
            if not isinstance(statement, Compute):
                del registers[program.carriers[statement.value]]
                continue
            inputs = [program.carriers[v] for v in plan.graph.inputs(statement.operation)]
            before = {registers[node].untyped_storage().data_ptr(): node for node in inputs}
            program.body(statement).run(registers, statement.drops)
            for v in plan.graph.outputs(statement.operation):
                taken = before.get(registers[program.carriers[v]].untyped_storage().data_ptr())
                assert taken is (None if statement.overwrites is None else program.carriers[statement.overwrites])
                assert taken is None or taken not in registers
                same, new = same + (taken is not None), new + (taken is None)
    return same, new


def test_sums_and_gradients_of_activations_run_in_place(net):
    model, graph = net
    plan = Plan.of(checkpoint_all(graph))
    names = in_place(plan)
    assert len([name for name in names if "relu_backward" in name]) == 7
    assert len([name for name in names if "add" in name]) == 6
    same, new = moved(trace(model.module, model.args), plan, model.module, model.args)
    assert same == len(names)
    assert new > 0


def test_an_operand_that_lives_on_is_not_overwritten():
    """GELU's backward pass reads GELU's input; once that is computed again, GELU may overwrite it."""
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), torch.randn(256, 64)
    graph = rx.capture(model, (x,))
    gelu = next(k for k, node in enumerate(graph.operations) if node.name == "1 gelu")
    assert graph.operations[gelu].default.overwrites is not None
    assert "1 gelu" not in in_place(Plan.of(checkpoint_all(graph)))
    dropped = random_schedule(graph, 0, dropped=1.0, flipped=0.0)
    assert "1 gelu" in in_place(Plan.of(dropped))
    for schedule in (checkpoint_all(graph), dropped):
        moved(trace(model, (x,)), Plan.of(schedule), model, (x,))
        found = rx.measure(solution_of(schedule), model, (x,), device="cpu", repeats=1)
        np.testing.assert_array_equal(found.after, found.predicted.after)
        assert found.equal


@pytest.mark.parametrize("seed", thorough_but(range(4), 0, 1))
def test_schedules_that_recompute_overwrite_and_stay_exact(net, seed):
    model, graph = net
    schedule = random_schedule(graph, seed, dropped=0.6)
    assert len(in_place(Plan.of(schedule))) > 13  # more than where everything is kept
    found = rx.measure(solution_of(schedule), model.module, model.args, device="cpu", repeats=1)
    np.testing.assert_array_equal(found.after, found.predicted.after)
    assert np.abs(found.during - found.predicted.during).max() <= 0.01 * found.predicted_peak
    assert found.equal


def test_half_precision_is_exact_where_a_kernel_in_place_would_round_otherwise():
    class Power(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16).bfloat16()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).abs().pow(2.3).sum()

    torch.manual_seed(0)
    model, x = Power(), torch.randn(32, 16).bfloat16()
    found = rx.measure(rx.solve(rx.capture(model, (x,)), "100%"), model, (x,), device="cpu", repeats=1)
    assert found.equal
