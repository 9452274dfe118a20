"""Training within smallest, reserved and relative budgets, and those of several backward passes, and what is said."""

import re
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.allocator import reserved_of
from remat_explorer.capture.memory_meter import CpuMeter, memory_meter
from remat_explorer.errors import ExecutionError, QuantityError, SolutionError
from remat_explorer.plan import Plan
from remat_explorer.runtime.retain_graph import retaining_peak
from remat_explorer.solvers import checkpoint_all_peak
from tests.runtime.heads import NAMES, Heads, X, recomputing
from tests.runtime.kinds_of_models import Made
from tests.runtime.step_outcomes import assert_same


def perceptron() -> nn.Sequential:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())), nn.Linear(64, 1))


def wide() -> nn.Module:
    """Values of 1 MiB, two of which make a segment of the small pool."""
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), *perceptron())


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(10) for part in (nn.Linear(16, 16), nn.Tanh())))


MANY, WIDE = torch.randn(4096, 16), torch.randn(512, 16)


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


@pytest.mark.filterwarnings("ignore")
def test_the_smallest_budget_is_that_of_each_step_that_is_planned_anew():
    def turning(self: Any, x: torch.Tensor) -> torch.Tensor:
        """Needs more memory where a sum is negative."""
        return self.net(x if x.sum() > 0 else torch.cat([x, x.sin()])).sum()

    x = torch.rand(64, 64)
    trained = rx.rematerialize(Made(turning, net=perceptron()), (x,), budget="smallest", time_limit=4.0)
    first = trained.rematerialization.solution
    assert (first.peak or 0) <= first.budget < checkpoint_all_peak(first.graph)
    trained(-x).backward()  # the bytes of the first plan hold no schedule here
    turned = trained.rematerialization.solution
    assert (turned.peak or 0) <= turned.budget
    assert turned.budget > first.budget
    trained(torch.rand(96, 64)).backward()
    assert trained.rematerialization.solution.budget > first.budget


@pytest.mark.filterwarnings("ignore")
def test_a_relative_budget_is_one_of_the_type_that_the_model_has_now():
    trained = rx.rematerialize(perceptron(), (torch.rand(512, 64),), budget="90%", time_limit=2.0)
    first = trained.rematerialization.solution.budget
    trained.double()
    for count in (256, 512):  # the larger one does not fit into the bytes of the first plan
        trained(torch.rand(count, 64).double()).sum().backward()
    found = trained.rematerialization.solution
    assert found.budget == int(0.9 * checkpoint_all_peak(found.graph)) > first


def test_a_model_is_trained_within_reserved_bytes_and_what_reserves_more_is_refused():
    everything, least = (
        rx.rematerialize(wide(), (MANY,), budget=budget).rematerialization.solution for budget in ("100%", "smallest")
    )
    budget = everything.budget  # which holds what is requested
    assert isinstance(everything, rx.Solution)
    assert everything.schedule is not None
    assert reserved_of(everything.schedule) > budget
    trained = rx.rematerialize(wide(), (MANY,), budget=budget, budget_means="reserved", time_limit=10)
    solution = trained.rematerialization.solution
    assert isinstance(solution, rx.Solution)
    assert solution.schedule is not None
    assert reserved_of(solution.schedule) <= budget == solution.budget
    trained(MANY).sum().backward()
    with pytest.raises(ExecutionError, match="no schedule for which PyTorch's allocator reserves at most"):
        rx.rematerialize(wide(), (MANY,), budget=least.budget, budget_means="reserved", time_limit=5)
    with pytest.raises(SolutionError, match=r"is predicted to reserve .* above its budget"):
        rx.rematerialize(wide(), (MANY,), solution=least, budget_means="reserved")
    with pytest.raises(QuantityError, match="known for requested bytes only"):
        rx.rematerialize(wide(), (MANY,), budget="smallest", budget_means="reserved")


def test_several_backward_passes_of_one_forward_pass_have_the_gradients_of_plain_pytorch():
    torch.manual_seed(0)
    model = Heads()
    solution = recomputing(model, X).rematerialization.solution
    trained: Any = rx.rematerialize(model, (X,), solution=solution, retain_graph=True)
    found, parameters = [], list(model.parameters())
    for one in (model, trained):
        torch.manual_seed(3)
        output = one(X)
        gradients: list[Any] = []
        for name in (*NAMES, *NAMES):
            loss = output[name].square().mean()
            gradients += torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        torch.stack([output[name].mean() for name in NAMES]).sum().backward()
        found.append([*gradients, *(p.grad for p in parameters)])
        model.zero_grad()
    assert_same(*found)
    with pytest.raises(ExecutionError, match="ran already"):
        output["first"].sum().backward()


def test_a_budget_includes_what_is_retained():
    model = layers()
    graph = rx.profile(rx.capture(model, (WIDE,)), model, (WIDE,), device="cpu", repeats=1)
    plain = rx.solve(graph, "85%", time_limit=5)
    assert plain.plan is not None
    assert retaining_peak(plain.plan) > plain.budget
    with pytest.raises(SolutionError, match="with retain_graph=True the solution needs"):
        rx.rematerialize(model, (WIDE,), solution=plain, retain_graph=True)
    trained: Any = rx.rematerialize(model, (WIDE,), budget="85%", time_limit=5, retain_graph=True)
    plan, ones = trained.rematerialization.solution.plan, torch.ones_like(trained(WIDE))
    assert plan.peak < retaining_peak(plan) <= trained.rematerialization.solution.budget
    for retained in (2, 0, 1):
        for _ in range(2):
            model.zero_grad()
            with CpuMeter() as meter, meter.section():
                output = trained(WIDE)
                for _ in range(retained):
                    output.backward(ones, retain_graph=True)
                    model.zero_grad()
                output.backward(ones)
                del output
        expected = retaining_peak(plan) if retained else plan.peak
        assert 0.99 * expected <= graph.resident_bytes + meter.readings[0].highest <= expected


def test_relative_budgets_are_of_what_is_retained():
    trained = {
        budget: rx.rematerialize(layers(), (WIDE,), budget=budget, time_limit=5, retain_graph=True).rematerialization
        for budget in ("100%", "smallest")
    }
    peaks = {
        budget: retaining_peak(plan) for budget, one in trained.items() if isinstance(plan := one.solution.plan, Plan)
    }
    assert trained["100%"].solution.overhead == 1.0
    assert peaks["smallest"] == trained["smallest"].solution.budget < peaks["100%"] <= trained["100%"].solution.budget


def test_where_nothing_fits_with_what_is_retained_the_error_says_what_would():
    words = r"no schedule was found that keeps to .* with retain_graph=True, where .* one needs is .*\((\d+) bytes\)"
    with pytest.raises(ExecutionError, match=words) as caught:
        rx.rematerialize(layers(), (WIDE,), budget=100_000, time_limit=5, retain_graph=True)
    named = int(re.search(words, str(caught.value))[1])  # type: ignore[index]
    found = rx.rematerialize(layers(), (WIDE,), budget=named, time_limit=5, retain_graph=True).rematerialization
    assert isinstance(found.solution.plan, Plan)
    assert retaining_peak(found.solution.plan) <= named == found.solution.budget


def test_a_smaller_batch_keeps_everything_only_if_what_is_retained_fits():
    trained: Any = rx.rematerialize(layers(), (WIDE,), budget="smallest", time_limit=5, retain_graph=True)
    for count in (480, 400, 300, 200):
        trained(WIDE[:count]).sum().backward()
        found = trained.rematerialization.solution
        assert retaining_peak(found.plan) <= found.budget
    assert found.overhead == 1.0
