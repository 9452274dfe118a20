"""Profiling measures workspace and time, shows how far it is, and says when it cannot."""

from __future__ import annotations

import contextlib
import gc
import io
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import profiling
from remat_explorer.capture.profiling import progress_bar
from remat_explorer.errors import ExecutionError

X = torch.ones(2, 3, 16, 16)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(1568, 4)
    )


def test_profile_keeps_the_structure_and_finds_workspace(model):
    graph = rx.capture(model, (X,))
    profiled = rx.profile(graph, model, (X,), device="cpu", repeats=1)
    assert profiled.values == graph.values
    assert [node.name for node in profiled.operations] == [node.name for node in graph.operations]
    assert all(node.default.cost > 0 for node in profiled.operations)
    convolution = next(node for node in profiled.operations if node.name.startswith("0 conv2d"))
    assert convolution.default.workspace > 0  # a reordered copy of the weight or the output


def test_profile_leaves_the_model_and_the_random_state_alone(model):
    before, state = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    rx.profile(rx.capture(model, (X,)), model, (X,), device="cpu", repeats=1)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_progress_counts_every_operation_of_every_run(model):
    graph, seen = rx.capture(model, (X,)), []
    rx.profile(graph, model, (X,), device="cpu", repeats=2, on_progress=lambda *now: seen.append(now), refresh=True)
    assert seen == [(done + 1, 4 * graph.n) for done in range(4 * graph.n)]


def test_a_cancelled_profile_names_where_it_stopped(model):
    with pytest.raises(ExecutionError, match="cancelled after '0 conv2d'"):
        rx.profile(rx.capture(model, (X,)), model, (X,), device="cpu", cancelled=lambda: True, refresh=True)


def test_a_graph_of_another_batch_is_refused(model):
    with pytest.raises(ExecutionError, match=r"'0 conv2d' has 6272 bytes, but 12544 bytes here: capture the model"):
        rx.profile(rx.capture(model, (X[:1],)), model, (X,), device="cpu")


def test_a_device_that_is_not_there_is_refused(model):
    with pytest.raises(ExecutionError, match="'tpu' is not a device"):
        rx.profile(rx.capture(model, (X,)), model, (X,), device="tpu")


class Settings:
    def __init__(self) -> None:
        self.depth = 1


class Configured(nn.Module):
    """A layer with attributes of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(6, 6), nn.Dropout(0.25)
        self.register_buffer("offset", torch.zeros(6))
        self.register_buffer("unsaved", torch.zeros(6), persistent=False)
        self.config: Any = SimpleNamespace(scale=2.0)
        self.notes: Any = {"a": (1, [2])}
        self.widths, self.settings, self.names = [1, 2], Settings(), {"a", "b"}
        self.table: Any = torch.ones(6)
        self.act: Any = nn.functional.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(self.layer(x)) * self.config.scale + self.offset * self.table)


def mean(output: torch.Tensor) -> torch.Tensor:
    return output.mean()


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What a profile has traced."""
    seen: list[object] = []
    trace = profiling.trace

    def watched(*args, **kwargs):
        seen.append(args)
        return trace(*args, **kwargs)

    monkeypatch.setattr(profiling, "trace", watched)
    return seen


def test_a_profile_of_a_graph_just_captured_does_not_trace_the_step_again(traces):
    model, x = Configured(), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    once = rx.profile(graph, model, (x,), loss=mean, repeats=1, refresh=True)
    assert not traces
    again = rx.profile(graph, model, (x,), loss=mean, repeats=1, refresh=True)
    assert len(traces) == 1
    assert once.structure == again.structure
    assert once.values == again.values


def test_training_between_capture_and_profile_changes_nothing_that_is_traced(traces):
    model, x = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    mean(model(x)).backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    rx.profile(graph, model, (x,), loss=mean, repeats=1, refresh=True)
    assert not traces


CHANGES = {
    "mode": lambda model: model.eval(),
    "rate": lambda model: setattr(model.drop, "p", 0.5),
    "frozen": lambda model: model.layer.bias.requires_grad_(False),
    "parameter": lambda model: setattr(model.layer, "bias", nn.Parameter(torch.ones(6))),
    "moved": lambda model: setattr(model.layer.bias, "data", torch.ones(6)),
    "buffer": lambda model: setattr(model, "offset", torch.ones(6)),
    "layer": lambda model: setattr(model, "layer", nn.Linear(6, 6)),
    "class": lambda model: setattr(model, "__class__", type("Other", (Configured,), {})),
    "hook": lambda model: model.layer.register_forward_hook(lambda *_: None),
    "configuration": lambda model: setattr(model.config, "scale", 3.0),
    "setting": lambda model: setattr(model.settings, "depth", 2),
    "set": lambda model: model.names.add("c"),
    "list": lambda model: model.widths.append(3),
    "within a dictionary": lambda model: model.notes["a"][1].append(3),
    "function": lambda model: setattr(model, "act", nn.functional.gelu),
    "tensor": lambda model: model.table.mul_(2),
    "more": lambda model: setattr(model, "more", 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_was_changed_since_its_capture_is_traced_again(change, traces):
    model, x = Configured(), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    CHANGES[change](model)
    with contextlib.suppress(ExecutionError):  # where the graph is another now
        rx.profile(graph, model, (x,), loss=mean, repeats=1, refresh=True)
    assert len(traces) == 1


def test_other_inputs_and_another_loss_are_traced_again(traces):
    model, x = Configured(), torch.ones(4, 6)
    for args, loss in [((torch.ones(4, 6),), mean), ((x,), lambda output: output.mean())]:
        graph = rx.capture(model, (x,), loss=mean)
        rx.profile(graph, model, args, loss=loss, repeats=1, refresh=True)
    assert len(traces) == 2


def test_autocast_around_the_profile_alone_is_noticed(traces):
    model, x = Configured(), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ExecutionError, match="capture the model again"):
        rx.profile(graph, model, (x,), loss=mean, repeats=1, refresh=True)
    assert len(traces) == 1


def test_values_that_a_trace_has_read_are_looked_at_again(traces):
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
            return self.layer(x)[: int(count)].mean()

    model, x, count = Counted(), torch.ones(4, 6), torch.tensor(2)
    graph = rx.capture(model, (x, count))
    rx.profile(graph, model, (x, count), repeats=1, refresh=True)
    assert not traces
    graph = rx.capture(model, (x, count))
    count.fill_(3)
    with pytest.raises(ExecutionError, match="capture the model again"):
        rx.profile(graph, model, (x, count), repeats=1, refresh=True)
    assert len(traces) == 1


def test_what_contains_itself_can_be_captured_and_profiled(traces):
    model, x = Configured(), torch.ones(4, 6)
    model.notes["itself"] = model.notes
    graph = rx.capture(model, (x,), loss=mean)
    rx.profile(graph, model, (x,), loss=mean, repeats=1, refresh=True)
    assert len(traces) == 1


def test_a_capture_keeps_neither_model_nor_inputs_alive():
    model, x = Configured(), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    left = [weakref.ref(thing) for thing in (model, x, model.layer.weight, model.offset, model.settings)]
    del model, x
    gc.collect()
    assert [reference() for reference in left] == [None] * 5
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def count_to_three() -> None:
    with progress_bar("profiling", 3) as advance:
        for done in (1, 2, 3):
            advance(done, 3)


def test_nothing_is_shown_where_nobody_looks(capsys):
    count_to_three()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_a_bar_that_goes(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    count_to_three()
    assert "profiling:   0%" in terminal.getvalue()
    assert terminal.getvalue().split("\r")[-2].strip() == ""


@pytest.mark.parametrize(("config", "shown"), [({"IPKernelApp": {}}, True), ({}, False)])
def test_a_notebook_shows_a_bar_on_stdout_and_a_plain_ipython_none(capsys, monkeypatch, config, shown):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(config=config)))
    count_to_three()
    out, err = capsys.readouterr()
    assert ("profiling" in out) == shown
    assert err == ""


def test_an_error_inside_closes_the_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with pytest.raises(ValueError, match="stop"), progress_bar("profiling", 3):
        raise ValueError("stop")
    assert terminal.getvalue().endswith("\r")
