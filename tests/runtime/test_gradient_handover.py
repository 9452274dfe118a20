"""Gradients reach autograd as the plan makes them, so that hooks on parameters run while it goes on."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import gradient_handover
from tests.runtime.heads import Heads, Loss, X, differing, gradients, keeping, recomputing
from tests.runtime.kinds_of_models import Made, linear
from tests.thorough import thorough_but

WIDE = torch.randn(256, 32)


@pytest.fixture(autouse=True)
def _every_gradient_at_once(monkeypatch):
    """What takes no time is handed over, too."""
    monkeypatch.setattr(gradient_handover, "MIN_SECONDS", 0.0)


def layers(count: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(count) for part in (nn.Linear(32, 32), nn.Tanh())))


@pytest.fixture(scope="module")
def smallest() -> rx.Solution:
    """The schedule of the smallest feasible budget."""
    model = layers()
    graph = rx.profile(rx.capture(model, (WIDE,)), model, (WIDE,), device="cpu", repeats=1)
    solution = rx.solve(graph, rx.minimum_budget(graph).known_feasible, time_limit=5)
    assert solution.schedule is not None
    assert solution.schedule.recomputations > 0
    return solution


@pytest.fixture
def trained(smallest: rx.Solution) -> Any:
    return rx.rematerialize(layers(), (WIDE,), solution=smallest)


class Calls(TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def mean_square(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def shares(model: nn.Module, x: torch.Tensor, loss: Loss = mean_square) -> dict[str, float]:
    """For each parameter, in order, the share of the backward pass's operations that ran before its gradient came."""
    calls, seen = Calls(), {}

    def noting(name: str) -> Any:
        return lambda p: None if p.grad is None else seen.update({name: calls.count})

    handles = [p.register_post_accumulate_grad_hook(noting(name)) for name, p in model.named_parameters()]
    value = loss(model(x))
    with calls:
        value.backward()
    for handle in handles:
        handle.remove()
    model.zero_grad()
    return {name: count / calls.count for name, count in seen.items()}


def test_hooks_run_in_the_order_of_plain_pytorch_while_the_plan_goes_on(trained):
    mine, plain = shares(trained, WIDE), shares(layers(), WIDE)
    assert [name.partition(".")[0] for name in mine] == [name.partition(".")[0] for name in plain]
    found = list(mine.values())
    assert found == sorted(found)
    assert found[0] < 0.25
    assert found[len(found) // 2] < 0.7
    assert mine == shares(trained, WIDE)


def test_what_takes_no_time_is_handed_over_together(monkeypatch, trained):
    monkeypatch.setattr(gradient_handover, "MIN_SECONDS", 1.0)
    (handover,) = trained.rematerialization.plans[0].code.handovers
    assert len(handover) == 16


def test_a_gradient_is_in_memory_once_and_gone_when_a_hook_drops_it(trained):
    solution = trained.rematerialization.solution
    peaks, ones = [], torch.ones_like(WIDE)
    for drop in (False, True):
        if drop:
            for parameter in trained.parameters():
                parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
        for _ in range(2):
            trained.zero_grad()
            with CpuMeter() as meter, meter.section():
                trained(WIDE).backward(ones)
        peaks.append(solution.graph.resident_bytes + meter.readings[0].highest)
        after = meter.readings[0].after
    assert 0.99 * solution.peak <= peaks[0] <= solution.budget
    assert peaks[1] <= peaks[0]
    gradients = sum(parameter.nbytes for parameter in trained.parameters())
    assert after < gradients


def test_a_hook_may_step_and_change_gradients_though_the_plan_goes_on():
    """The gradient of `p` is also that of the activation before it; each weight is read after its gradient is made."""
    model = Made(
        lambda s, x: (s.b(torch.tanh(s.a(x) + s.p)) + s.p).sin(),
        a=linear(),
        b=linear(),
        p=nn.Parameter(torch.ones(4, 8)),
    )
    x = torch.randn(4, 8)
    ends = []
    for one in (copy.deepcopy(model), keeping(copy.deepcopy(model), x), recomputing(copy.deepcopy(model), x)):
        for parameter in one.parameters():

            def step(own: torch.Tensor) -> None:
                assert own.grad is not None
                with torch.no_grad():
                    own.sub_(own.grad.mul_(0.1))
                own.grad = None

            parameter.register_post_accumulate_grad_hook(step)
        for _ in range(2):
            one(x).square().mean().backward()
        ends.append({name: parameter.detach() for name, parameter in one.named_parameters()})
    for found in ends[1:]:
        for name, content in ends[0].items():
            assert torch.equal(content, found[name]), name


def test_a_hook_that_writes_to_another_parameter_is_refused(trained):
    model = trained.rematerialization.model

    def write(_: torch.Tensor) -> None:
        with torch.no_grad():
            model.get_parameter("0.weight").mul_(2.0)
            model.get_parameter("2.weight").mul_(2.0)

    handle = model.get_parameter("14.weight").register_post_accumulate_grad_hook(write)
    with pytest.raises(ExecutionError, match=r"parameter '2\.weight' was written to in the backward pass, before its"):
        trained(WIDE).sum().backward()
    handle.remove()
    trained(WIDE).sum().backward()


def test_after_an_error_in_a_hook_the_pass_is_over_and_the_next_one_exact(trained):
    model, plain = trained.rematerialization.model, layers()

    def fail(_: torch.Tensor) -> None:
        raise RuntimeError("the hook")

    handle = model.get_parameter("8.bias").register_post_accumulate_grad_hook(fail)
    output = trained(WIDE)
    with pytest.raises(RuntimeError, match="the hook"):
        output.sum().backward()
    handle.remove()
    with pytest.raises(ExecutionError, match="ran already"):
        output.sum().backward()
    model.zero_grad()
    for one in (plain, trained):
        one(WIDE).sum().backward()
    assert all(torch.equal(*pair) for pair in zip(grads(plain), grads(trained), strict=True))


def grads(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_gradients_of_the_last_layer_alone_end_the_plan_early(trained):
    model = trained.rematerialization.model
    last = [model.get_parameter("14.weight"), model.get_parameter("14.bias")]
    counts, found = [], []
    for wanted in (last, list(model.parameters())):
        loss = trained(WIDE).square().mean()
        with Calls() as calls:
            found.append(torch.autograd.grad(loss, wanted))
        counts.append(calls.count)
    assert counts[0] < 0.4 * counts[1]
    expected = torch.autograd.grad(model(WIDE).square().mean(), list(model.parameters()))
    assert all(torch.equal(*pair) for pair in zip(found[1], expected, strict=True))
    assert all(torch.equal(*pair) for pair in zip(found[0], expected[-2:], strict=True))


USED = [(used, make) for used in ("first", "features") for make in (keeping, recomputing)]


@pytest.mark.parametrize(("used", "make"), thorough_but(USED, ("first", recomputing), ("features", keeping)))
def test_with_an_unused_output_gradients_come_one_by_one_too(make, used):
    torch.manual_seed(0)
    trained: Any = make(Heads(), X)
    assert len(trained.rematerialization.plans[0].code.handovers) > 5
    seen = shares(trained, X, lambda output: output[used].sum())
    assert len(set(seen.values())) > 3
    plain = gradients(trained.rematerialization.model, (X,), lambda output: output[used].sum())
    assert differing(gradients(trained, (X,), lambda output: output[used].sum()), plain) == []


def test_gradients_of_gradients_are_refused(trained):
    with pytest.raises(ExecutionError, match="create_graph=True asks for gradients of gradients"):
        torch.autograd.grad(trained(WIDE).square().mean(), list(trained.parameters()), create_graph=True)
