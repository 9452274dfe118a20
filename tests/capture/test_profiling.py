"""Profiling measures workspace and time, shows how far it is, and measures once: when numbers on disk are taken."""

import contextlib
import gc
import io
import json
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import profiling
from remat_explorer.capture.profile_cache import machine_of, processor_name
from remat_explorer.capture.profiling import progress_bar
from remat_explorer.errors import ExecutionError
from tests.runtime.kinds_of_models import Made

X = torch.ones(2, 3, 16, 16)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(1568, 4)
    )


def test_profile_keeps_the_structure_finds_workspace_and_leaves_the_model_and_the_random_state_alone(model):
    graph = rx.capture(model, (X,))
    before, state = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    profiled = rx.profile(graph, model, (X,), device="cpu", repeats=1)
    assert profiled.values == graph.values
    assert [node.name for node in profiled.operations] == [node.name for node in graph.operations]
    assert all(node.default.cost > 0 for node in profiled.operations)
    convolution = next(node for node in profiled.operations if node.name.startswith("0 conv2d"))
    assert convolution.default.workspace > 0  # a reordered copy of the weight or the output
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_progress_counts_every_operation_of_every_run(model):
    graph, seen = rx.capture(model, (X,)), []
    rx.profile(graph, model, (X,), device="cpu", repeats=2, on_progress=lambda *now: seen.append(now), refresh=True)
    assert seen == [(done + 1, 4 * graph.n) for done in range(4 * graph.n)]


def test_a_graph_of_another_batch_and_a_device_that_is_not_there_are_refused(model):
    with pytest.raises(
        ExecutionError,
        match=r"'0 conv2d' has 6.12 KiB \(6272 bytes\), but 12.2 KiB \(12544 bytes\) here: capture the model",
    ):
        rx.profile(rx.capture(model, (X[:1],)), model, (X,), device="cpu")
    with pytest.raises(ExecutionError, match="'tpu' is not a device"):
        rx.profile(rx.capture(model, (X,)), model, (X,), device="tpu")


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.25)
        self.register_buffer("offset", torch.zeros(6))
        self.register_buffer("unsaved", torch.zeros(6), persistent=False)
        self.config: Any = SimpleNamespace(scale=2.0)
        self.notes: Any = {"a": (1, [2])}
        self.names = {"a", "b"}
        self.table: Any = torch.ones(6)
        self.act: Any = nn.functional.relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.drop(self.norm(self.layer(x))) * self.config.scale + self.offset * self.table)


def mean(output: torch.Tensor) -> torch.Tensor:
    return output.mean()


def profile(graph: rx.Graph, model: nn.Module, *args: torch.Tensor, loss: Any = mean) -> rx.Graph:
    return rx.profile(graph, model, args, loss=loss, repeats=1, refresh=True)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    seen, trace = list[object](), profiling.trace
    monkeypatch.setattr(profiling, "trace", lambda *args, **kwargs: seen.append(args) or trace(*args, **kwargs))
    return seen


def test_a_profile_of_a_graph_just_captured_does_not_trace_the_step_again(traces):
    model, x = Configured(), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    mean(model(x)).backward()  # training in between changes nothing that is traced
    torch.optim.SGD(model.parameters(), 0.1).step()
    once = profile(graph, model, x)
    assert not traces
    again = profile(graph, model, x)
    assert len(traces) == 1
    assert (once.structure, once.values) == (again.structure, again.values)


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
    "set": lambda model: model.names.add("c"),
    "within a dictionary": lambda model: model.notes["a"][1].append(3),
    "function": lambda model: setattr(model, "act", nn.functional.gelu),
    "tensor": lambda model: model.table.mul_(2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_was_changed_since_its_capture_is_traced_again(change, traces):
    model, x = Configured(), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    CHANGES[change](model)
    with contextlib.suppress(ExecutionError):  # where the graph is another now
        profile(graph, model, x)
    assert len(traces) == 1


def test_other_inputs_another_loss_and_autocast_around_the_profile_alone_are_traced_again(traces):
    model, x = Configured(), torch.ones(4, 6)
    for args, loss in [((torch.ones(4, 6),), mean), ((x,), lambda output: output.mean())]:
        graph = rx.capture(model, (x,), loss=mean)
        profile(graph, model, *args, loss=loss)
    graph = rx.capture(model, (x,), loss=mean)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ExecutionError, match="capture the model again"):
        profile(graph, model, x)
    assert len(traces) == 3


def test_values_that_a_trace_has_read_are_looked_at_again(traces):
    model = Made(lambda s, x, count: s.layer(x)[: int(count)].mean(), layer=nn.Linear(6, 6))
    x, count = torch.ones(4, 6), torch.tensor(2)
    graph = rx.capture(model, (x, count))
    profile(graph, model, x, count, loss=None)
    assert not traces
    graph = rx.capture(model, (x, count))
    count.fill_(3)
    with pytest.raises(ExecutionError, match="capture the model again"):
        profile(graph, model, x, count, loss=None)
    assert len(traces) == 1


def test_what_contains_itself_can_be_captured_and_profiled(traces):
    model, x = Configured(), torch.ones(4, 6)
    model.notes["itself"] = model.notes
    profile(rx.capture(model, (x,), loss=mean), model, x)
    assert len(traces) == 1


def test_a_capture_keeps_neither_model_nor_inputs_alive():
    model, x = Configured(), torch.ones(4, 6)
    graph = rx.capture(model, (x,), loss=mean)
    left = [weakref.ref(thing) for thing in (model, x, model.layer.weight, model.offset)]
    del model, x
    gc.collect()
    assert [reference() for reference in left] == [None] * 4
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_a_terminal_shows_a_bar_that_goes_even_with_an_error(monkeypatch):
    for error in (None, ValueError("stop")):
        terminal: Any = io.StringIO()
        terminal.isatty = lambda: True
        monkeypatch.setattr(sys, "stderr", terminal)
        with contextlib.suppress(ValueError), progress_bar("profiling", 3) as advance:
            advance(1, 3)
            if error:
                raise error
        assert "profiling:   0%" in terminal.getvalue()
        assert terminal.getvalue().endswith("\r")
        assert terminal.getvalue().split("\r")[-2].strip() == ""


@pytest.mark.parametrize(("config", "shown"), [({"IPKernelApp": {}}, True), ({}, False)])
def test_a_notebook_shows_a_bar_on_stdout_and_a_plain_ipython_none(capsys, monkeypatch, config, shown):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(config=config)))
    with progress_bar("profiling", 3) as advance:
        advance(3, 3)
    out, err = capsys.readouterr()
    assert ("profiling" in out) == shown
    assert err == ""


SIGNAL = torch.ones(2, 4, 8)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def convolution(**options) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(4, 4, 3, padding="same", **options), nn.Tanh())


def profiled(model: nn.Module, x: torch.Tensor = SIGNAL, **options) -> tuple[rx.Graph, int]:
    """The profile, and how many operations ran for it."""
    ran: list[int] = []
    graph = options.pop("graph", None) or rx.capture(model, (x,))
    given = {"device": "cpu", "repeats": 1} | options
    return rx.profile(graph, model, (x,), on_progress=lambda done, total: ran.append(done), **given), len(ran)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_two_profiles_of_a_graph_are_equal_and_the_second_runs_nothing(folder):
    first, ran = profiled(convolution())
    again, ran_again = profiled(convolution())  # another module of the same kind
    assert first == again
    assert first != rx.capture(convolution(), (SIGNAL,))
    assert (ran, ran_again) == (3 * first.n, 0)
    assert json.loads(only_file(folder).read_text())["seconds"] == [node.default.cost for node in first.operations]


def test_a_refreshed_profile_is_measured_and_replaces_the_old_one(folder):
    profiled(convolution())
    path = only_file(folder)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"seconds": [1e6] * len(document["seconds"])}))
    assert profiled(convolution())[0].total_cost > 1e6
    assert profiled(convolution(), repeats=2)[1] > 0  # more of them are another profile
    refreshed, ran = profiled(convolution(), refresh=True)
    assert ran > 0
    assert refreshed.total_cost < 1e6
    assert profiled(convolution()) == (refreshed, 0)


def test_costs_of_the_given_graph_do_not_matter():
    profiled(convolution())
    predicted_elsewhere = rx.capture(convolution(), (SIGNAL,), device="A100")
    found, ran = profiled(convolution(), graph=predicted_elsewhere)
    assert ran == 0
    assert profiled(convolution(), graph=found) == (found, 0)


def test_other_kernels_or_types_behind_the_same_graph_are_measured():
    transposed = SIGNAL.transpose(1, 2).contiguous().transpose(1, 2)
    kernels = [(convolution(), SIGNAL), (convolution(dilation=2), SIGNAL), (convolution(), transposed)]
    types = [(nn.Linear(8, 8).to(kind), SIGNAL.to(kind)) for kind in (torch.float16, torch.bfloat16)]
    for kinds in (kernels, types):
        assert len({rx.capture(model, (x,)).sha256 for model, x in kinds}) == 1
        assert all(profiled(model, x)[1] > 0 for model, x in kinds)


def test_the_key_names_the_machine_the_precision_of_products_and_the_threads_or_the_gpu(monkeypatch):
    here = machine_of(CPU)
    assert here["processor"] == processor_name() != ""
    assert here["torch"] == torch.__version__
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 7)
        assert machine_of(CPU) == here | {"threads": 7}
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert machine_of(CPU) != here
    finally:
        torch.set_float32_matmul_precision(before)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    found = machine_of(torch.device("cuda", 1))
    assert (found["device"], found["gpu"], found["processor"]) == ("cuda", "GPU 1", processor_name())
    assert "threads" not in found


DAMAGES: dict[str, Callable[[Any], Any]] = {
    "another version": lambda kept: kept | {"version": 1},
    "another key": lambda kept: kept | {"key": {"graph": "another"}},
    "too short a list": lambda kept: kept | {"workspace": [0]},
    "no number": lambda kept: kept | {"seconds": [float("nan"), *kept["seconds"][1:]]},
    "less than nothing": lambda kept: kept | {"workspace": [-1, *kept["workspace"][1:]]},
    "half a file": lambda kept: json.dumps(kept)[:-20].encode(),
    "no text": lambda kept: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_file_is_measured_again_and_mended(folder, damage):
    profiled(convolution())
    path = only_file(folder)
    damaged = DAMAGES[damage](json.loads(path.read_text()))
    path.write_bytes(damaged if isinstance(damaged, bytes) else json.dumps(damaged).encode())
    mended, ran = profiled(convolution())
    assert ran > 0
    assert profiled(convolution()) == (mended, 0)
    assert only_file(folder) == path


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file" / "cache"))
    assert profiled(convolution())[1] > 0
    assert profiled(convolution())[1] > 0


def test_a_cancelled_profile_leaves_nothing(folder):
    with pytest.raises(ExecutionError, match="cancelled after '0 "):
        profiled(convolution(), cancelled=lambda: True)
    assert not folder.exists()
