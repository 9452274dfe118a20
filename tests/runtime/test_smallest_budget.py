"""Training within the smallest budget with a known schedule, and what is said where none was found."""

import re

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.errors import ExecutionError
from remat_explorer.solvers import checkpoint_all_peak


def perceptron() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())), nn.Linear(64, 1))


def test_a_model_is_trained_within_the_smallest_budget():
    inputs = torch.randn(256, 64)
    trained = rx.rematerialize(perceptron(), (inputs,), budget="smallest")
    solution = trained.rematerialization.solution
    assert (solution.peak or 0) <= solution.budget < checkpoint_all_peak(solution.graph)
    trained(inputs).sum().backward()
    assert all(parameter.grad is not None for parameter in trained.parameters())


def test_running_statistics_of_before_a_step_are_held_in_the_memory_of_the_new_ones():
    loaded = rx.models.load("residual_net", 4, 16)
    trained = rx.rematerialize(loaded.module, loaded.args, budget="smallest", time_limit=4.0)
    halves = trained.rematerialization.first.code
    buffers = {entry.node for entry in halves.program.inputs if entry.kind == "buffer"}
    assert buffers.intersection(halves.backward_residents)  # a normalization runs again in the backward pass
    with memory_meter(torch.device("cpu")) as meter, meter.section():
        loss = trained(*loaded.args)
    assert loss.requires_grad
    assert meter.readings[0].after <= halves.saved_bytes


def test_where_no_schedule_was_found_the_error_names_the_smallest_budget_with_one():
    with pytest.raises(ExecutionError) as caught:
        rx.rematerialize(perceptron(), (torch.randn(256, 64),), budget="90%", strategy="checkmate-ilp", time_limit=0.0)
    message = str(caught.value)
    assert "before it was ended by the time limit of 0 µs" in message
    assert re.search(r"there is one that needs .* \(\d+ bytes\): try the strategy 'optimal'", message)


class Turning(nn.Module):
    """Needs more memory where a sum is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = perceptron()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x if x.sum() > 0 else torch.cat([x, x.sin()])).sum()


@pytest.mark.filterwarnings("ignore")
def test_the_smallest_budget_is_that_of_each_step_that_is_planned_anew():
    x = torch.rand(64, 64)
    trained = rx.rematerialize(Turning(), (x,), budget="smallest", time_limit=4.0)
    smallest = trained.rematerialization.solution.budget
    trained(-x).backward()  # the bytes of the first plan hold no schedule here
    turned = trained.rematerialization.solution
    assert (turned.peak or 0) <= turned.budget
    assert turned.budget > smallest
    trained(torch.rand(96, 64)).backward()
    assert trained.rematerialization.solution.budget > smallest


@pytest.mark.filterwarnings("ignore")
def test_a_relative_budget_is_one_of_the_type_that_the_model_has_now():
    trained = rx.rematerialize(perceptron(), (torch.rand(512, 64),), budget="90%", time_limit=2.0)
    first = trained.rematerialization.solution.budget
    trained.double()
    for count in (256, 512):  # the larger one does not fit into the bytes of the first plan
        trained(torch.rand(count, 64).double()).sum().backward()
    found = trained.rematerialization.solution
    assert found.budget == int(0.9 * checkpoint_all_peak(found.graph)) > first
