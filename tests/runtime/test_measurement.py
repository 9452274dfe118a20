"""A measured run as a trace that Perfetto opens."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute
from tests.runtime.random_schedules import random_schedule, solution_of


@pytest.fixture(scope="module")
def measured():
    model, x = nn.Sequential(*(nn.Linear(16, 16) for _ in range(5)), nn.Tanh()), torch.randn(32, 16)
    solution = solution_of(random_schedule(rx.capture(model, (x,)), 2, 0.6))
    return rx.measure(solution, model, (x,), device="cpu", repeats=1)


def test_each_computation_is_a_slice_with_its_bytes(measured, tmp_path):
    events = json.loads(measured.save_trace(tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    computed = [s for s in measured.plan.statements if isinstance(s, Compute)]
    assert [event["args"]["statement"] for event in slices] == [measured.plan.text(s) for s in computed]
    assert {event["cat"] for event in slices} == {"forward", "backward", "recomputed"}
    assert sum(event["dur"] for event in slices) <= 1e6 * measured.statement_seconds.sum() * (1 + 1e-9)
    for before, after in itertools.pairwise(slices):
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-6


@pytest.mark.parametrize(("name", "peak"), [("memory measured", "peak"), ("memory predicted", "predicted_peak")])
def test_memory_is_a_counter_with_the_peak(measured, tmp_path, name, peak):
    events = json.loads(measured.save_trace(tmp_path / "trace.json").read_text())["traceEvents"]
    counter = [event for event in events if event["ph"] == "C" and event["name"] == name]
    assert max(event["args"]["bytes"] for event in counter) == getattr(measured, peak)
    times = [event["ts"] for event in counter]
    assert times == sorted(times)


def test_a_memory_snapshot_needs_cuda(measured, tmp_path):
    model = nn.Linear(4, 4)
    solution = rx.solve(rx.capture(model, (torch.ones(2, 4),)), "100%")
    with pytest.raises(ExecutionError, match="memory snapshots on CUDA only"):
        rx.measure(solution, model, (torch.ones(2, 4),), device="cpu", snapshot=tmp_path / "snapshot.pickle")
    assert list(tmp_path.iterdir()) == []
