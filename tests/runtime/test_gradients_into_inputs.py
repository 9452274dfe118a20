"""Inputs that require a gradient get that of plain PyTorch: stems, prompts, discriminators, adversarial examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime import gradient_handover
from tests.runtime.heads import keeping, recomputing
from tests.runtime.kinds_of_models import Made, linear
from tests.thorough import thorough_but

X = torch.randn(32, 8)
ROADS = {"keeping": keeping, "recomputing": recomputing}


@pytest.fixture(autouse=True)
def _every_gradient_at_once(monkeypatch):
    monkeypatch.setattr(gradient_handover, "MIN_SECONDS", 0.0)


def backbone() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        linear(), nn.Tanh(), linear(), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), linear(), nn.Tanh()
    )


def needs() -> torch.Tensor:
    return X.clone().requires_grad_()


def ends(*models: nn.Module) -> list[torch.Tensor]:
    return [content.clone() for model in models for content in model.state_dict().values()]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


TRAINED = [(road, frozen) for road in ROADS for frozen in (False, True)]


@pytest.mark.parametrize(("road", "frozen"), thorough_but(TRAINED, ("keeping", True), ("recomputing", False)))
def test_a_stem_before_it_is_trained_as_in_plain_pytorch(road, frozen):
    """Frozen, nothing but what comes before it learns, as in prompt tuning."""
    found = []
    for planned in (False, True):
        model, stem = backbone().requires_grad_(not frozen), linear()
        one = ROADS[road](model, needs()) if planned else model
        optimizer = torch.optim.SGD([*stem.parameters(), *one.parameters()], lr=0.1)
        torch.manual_seed(3)
        for _ in range(3):
            optimizer.zero_grad()
            one(stem(X).relu()).square().mean().backward()
            optimizer.step()
        found.append(ends(stem, model))
    assert equal(*found)


@pytest.mark.parametrize("road", ROADS)
def test_an_adversarial_example_gets_its_gradient(road):
    model = backbone().eval()
    planned, found = ROADS[road](model, needs()), []
    for one in (model, planned):
        x = needs()
        functional.mse_loss(one(x), X).backward()
        (alone,) = torch.autograd.grad(functional.mse_loss(one(x), X), x)
        assert x.grad is not None
        found.append([x.grad, alone, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        model.zero_grad()
    assert equal(*found)


@pytest.mark.parametrize("resolve", [False, True])
def test_a_discriminator_sees_real_and_generated_examples_in_one_step(resolve):
    """One plan serves both; where plans may be made anew, there is one without the gradient, too."""
    found, plans = [], 0
    for planned in (False, True):
        torch.manual_seed(0)
        critic, generator = nn.Sequential(linear(), nn.Tanh(), linear()), nn.Sequential(linear(), nn.Tanh())
        one: Any = critic
        if planned:
            one = rx.rematerialize(critic, (needs(),), budget="100%", strategy="checkpoint-all", resolve=resolve)
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (critic, generator)]
        for _ in range(2):
            optimizers[0].zero_grad()
            made = generator(X)
            (one(made.detach()).mean() - one(X.sin()).mean()).backward()
            optimizers[0].step()
            optimizers[1].zero_grad()
            (-one(made).mean() + one(made).square().mean()).backward()
            optimizers[1].step()
        plans = len(one.rematerialization.plans) if planned else 0
        found.append(ends(critic, generator))
    assert equal(*found)
    assert plans == 1 + resolve


def test_gradients_that_lie_in_the_memory_of_one_another_are_plain_pytorchs():
    """The gradient of a sum is one tensor for all of its terms, and that of an output where nothing else is added."""
    p = nn.Parameter(X[:4].clone())
    model = Made(lambda s, x, y: (x + y + s.p, (x[:2].expand(2, 2, 8) * s.p[:2]).sin()), p=p)
    given = [torch.randn(4, 8), torch.randn(2, 2, 8)]
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    for road in ROADS.values():
        found = []
        for one in (model, road(model, x.requires_grad_(), y.requires_grad_())):
            for used in (slice(0, 2), slice(0, 1), slice(1, 2)):
                starts = one(x.sin(), y.sin())[used]  # what is not leaf of autograd takes gradients as they are
                model.zero_grad()
                pairs = torch.autograd.grad(starts, [x, y, p], given[used], allow_unused=True)
                found.append([t if t is None else t.clone() for t in pairs])
        for mine, theirs in zip(found[3:], found[:3], strict=True):
            for first, second in zip(mine, theirs, strict=True):
                assert first is second or torch.equal(first, second)


def test_prediction_and_measurement_count_the_gradient():
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(16, 16), nn.Tanh())))
    x = torch.randn(512, 16, requires_grad=True)
    graph = rx.profile(rx.capture(model, (x,)), model, (x,), device="cpu", repeats=1)
    without = rx.capture(model, (x.detach(),))
    assert {value.name for value in graph.values if value.persistent} - {value.name for value in without.values} == {
        "input tensor 0.grad"
    }
    solution = rx.solve(graph, rx.minimum_budget(graph).known_feasible, time_limit=5)
    measurement = rx.measure(solution, model, (x,), device="cpu", repeats=1)
    assert measurement.equal
    assert measurement.peak == solution.peak
    trained: Any = rx.rematerialize(model, (x,), solution=solution)
    ones = torch.ones_like(trained(x))
    for _ in range(2):
        x.grad = None
        trained.zero_grad()
        with CpuMeter() as meter, meter.section():
            trained(x).backward(ones)
    assert solution.peak is not None
    assert 0.99 * solution.peak <= graph.resident_bytes + meter.readings[0].highest <= solution.peak


def test_a_further_call_takes_what_its_forward_pass_leaves():
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(16, 16), nn.Tanh())))
    x = torch.randn(512, 16)
    trained: Any = rx.rematerialize(model, (x,), budget="90%", time_limit=5)
    ones, planned = torch.ones_like(trained(x)), trained.rematerialization
    gradients = sum(parameter.nbytes for parameter in model.parameters())
    for count in (1, 2, 3):
        trained.zero_grad()
        with CpuMeter() as meter, meter.section():
            torch.autograd.backward([trained(x) for _ in range(count)], [ones] * count)
        over = planned.solution.graph.resident_bytes + meter.readings[0].highest - planned.solution.peak
        assert over <= (count - 1) * planned.waiting_bytes + (gradients if count > 1 else 0)
        assert over >= (count - 1) * planned.waiting_bytes - gradients - x.nbytes


def test_a_plan_without_the_gradient_is_refused_in_words():
    trained: Any = keeping(backbone(), X)
    with pytest.raises(ExecutionError, match=r"input 0 is .*, which requires a gradient, but the plan .*\.detach\(\)"):
        trained(needs())
    with torch.no_grad():
        assert not trained(needs()).requires_grad
