"""Several backward passes of one forward pass, where the plan was made for them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.errors import ExecutionError, SolutionError
from remat_explorer.runtime.retain_graph import retaining_peak
from tests.runtime.heads import NAMES, Heads, X, recomputing

WIDE = torch.randn(512, 16)


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(10) for part in (nn.Linear(16, 16), nn.Tanh())))


def test_gradients_of_each_loss_by_itself_are_those_of_plain_pytorch():
    torch.manual_seed(0)
    model = Heads()
    solution = recomputing(model, X).rematerialization.solution
    trained: Any = rx.rematerialize(model, (X,), solution=solution, retain_graph=True)
    found, parameters = [], list(model.parameters())
    for one in (model, trained):
        torch.manual_seed(3)
        output = one(X)
        losses = [output[name].square().mean() for name in (*NAMES, *NAMES)]
        options: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
        parts: list[Any] = [torch.autograd.grad(loss, parameters, **options) for loss in losses]
        torch.stack([output[name].mean() for name in NAMES]).sum().backward()
        parts.append([p.grad for p in parameters])
        model.zero_grad()
        found.append([gradient for part in parts for gradient in part])
    assert all((a is b) if a is None or b is None else torch.equal(a, b) for a, b in zip(*found, strict=True))
    with pytest.raises(ExecutionError, match="ran already"):
        output["first"].sum().backward()


def test_the_budget_includes_what_is_retained():
    model = layers()
    graph = rx.profile(rx.capture(model, (WIDE,)), model, (WIDE,), device="cpu", repeats=1)
    plain = rx.solve(graph, "85%", time_limit=5)
    assert plain.plan is not None
    assert retaining_peak(plain.plan) > plain.budget
    with pytest.raises(SolutionError, match="with retain_graph=True the solution needs"):
        rx.rematerialize(model, (WIDE,), solution=plain, retain_graph=True)
    trained: Any = rx.rematerialize(model, (WIDE,), budget="85%", time_limit=5, retain_graph=True)
    plan, ones = trained.rematerialization.solution.plan, torch.ones_like(trained(WIDE))
    expected = retaining_peak(plan)
    assert plan.peak < expected <= trained.rematerialization.solution.budget
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
        peak = graph.resident_bytes + meter.readings[0].highest
        assert 0.99 * (expected if retained else plan.peak) <= peak <= (expected if retained else plan.peak)


def test_relative_budgets_are_of_what_is_retained():
    trained = {
        budget: rx.rematerialize(layers(), (WIDE,), budget=budget, time_limit=5, retain_graph=True).rematerialization
        for budget in ("100%", "smallest")
    }
    peaks = {budget: retaining_peak(plan) for budget, one in trained.items() if (plan := one.solution.plan)}
    assert trained["100%"].solution.overhead == 1.0
    assert peaks["smallest"] == trained["smallest"].solution.budget < peaks["100%"] <= trained["100%"].solution.budget


def test_where_nothing_fits_the_error_says_what_would():
    words = r"no schedule was found that keeps to .* with retain_graph=True, where .* one needs is .*\((\d+) bytes\)"
    with pytest.raises(ExecutionError, match=words) as caught:
        rx.rematerialize(layers(), (WIDE,), budget=100_000, time_limit=5, retain_graph=True)
    named = int(re.search(words, str(caught.value))[1])  # type: ignore[index]
    found = rx.rematerialize(layers(), (WIDE,), budget=named, time_limit=5, retain_graph=True).rematerialization
    assert found.solution.plan is not None
    assert retaining_peak(found.solution.plan) <= named == found.solution.budget
    again = rx.rematerialize(layers(), (WIDE,), solution=found.solution, retain_graph=True).rematerialization
    assert again.solution.budget == named


def test_a_smaller_batch_keeps_everything_only_if_what_is_retained_fits():
    trained: Any = rx.rematerialize(layers(), (WIDE,), budget="smallest", time_limit=5, retain_graph=True)
    for count in (480, 400, 300, 200):
        trained(WIDE[:count]).sum().backward()
        found = trained.rematerialization.solution
        assert retaining_peak(found.plan) <= found.budget
    assert found.overhead == 1.0
