"""What a person has set for cuDNN holds in training by a plan, and a comparison sets it on both sides alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import remat_explorer as rx
from remat_explorer.capture import profiling
from remat_explorer.capture.profile_cache import machine_of

CUDNN: Any = torch.backends.cudnn
CHOSEN, OTHERS, EXACT = (True, False, False), (False, False, True), (False, True)


def settings() -> tuple[bool, bool, bool]:
    """benchmark, deterministic, allow_tf32."""
    return CUDNN.benchmark, CUDNN.deterministic, CUDNN.allow_tf32


def set_to(values: tuple[bool, bool, bool]) -> None:
    CUDNN.benchmark, CUDNN.deterministic, CUDNN.allow_tf32 = values


@pytest.fixture(params=[CHOSEN, OTHERS])
def chosen(request) -> Iterator[tuple[bool, bool, bool]]:
    before = settings()
    set_to(request.param)
    yield request.param
    set_to(before)


class Seen(nn.Module):
    """A module that runs whatever it is given, and notes the settings in each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layer(x).sin()).mean()


@pytest.fixture
def seen() -> Iterator[list[tuple[bool, bool, bool]]]:
    """The settings at each sine and at each of its gradients, by whatever road they run."""
    found: list[tuple[bool, bool, bool]] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in (torch.ops.aten.sin.default, torch.ops.aten.cos.default):
                found.append(settings())
            return func(*args, **(kwargs or {}))

    with Watch():
        yield found


def test_a_step_of_training_runs_with_what_the_person_has_set(chosen, seen):
    trained: Any = rx.rematerialize(Seen(), (torch.ones(4, 8),), budget="100%")
    seen.clear()
    trained(torch.ones(4, 8)).backward()
    assert seen == [chosen, chosen]  # forward and backward
    assert settings() == chosen


def test_the_profile_for_training_is_taken_with_what_the_person_has_set(chosen, monkeypatch):
    found: list[tuple[bool, bool, bool]] = []
    run = profiling.ProfilingRun.timed
    monkeypatch.setattr(profiling, "load_profile", lambda key, implementations, values: None)
    monkeypatch.setattr(
        profiling.ProfilingRun, "timed", lambda self, registers: found.append(settings()) or run(self, registers)
    )
    rx.rematerialize(Seen(), (torch.ones(4, 8),), budget="100%")
    assert found
    assert set(found) == {chosen}
    assert settings() == chosen


def test_a_comparison_sets_exact_kernels_on_both_sides_and_puts_the_settings_back(chosen, seen):
    model, args = Seen(), (torch.ones(4, 8),)
    graph = rx.profile(rx.capture(model, args), model, args, device="cpu", refresh=True)
    solution = rx.solve(graph, "100%", strategy="checkpoint-all")
    seen.clear()
    rx.measure(solution, model, args, device="cpu", repeats=1)
    assert len(seen) > 4
    assert {(benchmark, deterministic) for benchmark, deterministic, _ in seen} == {EXACT}
    assert {allow_tf32 for *_, allow_tf32 in seen} == {chosen[2]}
    assert settings() == chosen


@pytest.mark.parametrize("name", ["benchmark", "deterministic", "allow_tf32"])
def test_each_setting_is_in_the_key_of_a_profile_on_cuda(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU")
    before, here = getattr(CUDNN, name), machine_of(torch.device("cuda"))
    try:
        setattr(CUDNN, name, not before)
        assert machine_of(torch.device("cuda")) != here
    finally:
        setattr(CUDNN, name, before)
