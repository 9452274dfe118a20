"""A profile is measured once: when the numbers on disk are taken, and when they are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.cache_folder import cache_folder
from remat_explorer.capture import trace
from remat_explorer.capture.profile_cache import machine_of, processor_name, profile_key
from remat_explorer.errors import ExecutionError
from tests.thorough import thorough

X = torch.ones(2, 4, 8)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def convolution(**options) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(4, 4, 3, padding="same", **options), nn.Tanh())


def profiled(model: nn.Module, x: torch.Tensor = X, **options) -> tuple[rx.Graph, int]:
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
    assert first != rx.capture(convolution(), (X,))
    assert (ran, ran_again) == (3 * first.n, 0)
    assert json.loads(only_file(folder).read_text())["seconds"] == [node.default.cost for node in first.operations]


def test_a_refreshed_profile_is_measured_and_replaces_the_old_one(folder):
    profiled(convolution())
    path = only_file(folder)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"seconds": [1e6] * len(document["seconds"])}))
    assert profiled(convolution())[0].total_cost > 1e6
    refreshed, ran = profiled(convolution(), refresh=True)
    assert ran > 0
    assert refreshed.total_cost < 1e6
    assert profiled(convolution()) == (refreshed, 0)


def test_costs_of_the_given_graph_do_not_matter():
    profiled(convolution())
    predicted_elsewhere = rx.capture(convolution(), (X,), device="A100")
    found, ran = profiled(convolution(), graph=predicted_elsewhere)
    assert ran == 0
    assert profiled(convolution(), graph=found) == (found, 0)


def wider(model: nn.Module, x: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    return convolution(dilation=2), x


def transposed(model: nn.Module, x: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    return model, x.transpose(1, 2).contiguous().transpose(1, 2)


@pytest.mark.parametrize("change", [wider, transposed])
def test_other_kernels_behind_the_same_graph_are_measured(change):
    model, other = convolution(), change(convolution(), X)
    assert rx.capture(model, (X,)).sha256 == rx.capture(other[0], (other[1],)).sha256
    assert profiled(model)[1] > 0
    assert profiled(*other)[1] > 0


def test_another_type_of_equal_width_is_another_profile():
    half, brain = (
        profile_key(trace(nn.Linear(8, 8).to(kind), (X.to(kind),)), CPU, 1) for kind in (torch.float16, torch.bfloat16)
    )
    assert half["graph"] == brain["graph"]
    assert half["program"] != brain["program"]


def test_more_repeats_are_another_profile():
    profiled(convolution())
    assert profiled(convolution(), repeats=2)[1] > 0


def test_the_key_names_the_machine_and_the_threads(monkeypatch):
    here = machine_of(CPU)
    assert here["processor"] == processor_name() != ""
    assert here["torch"] == torch.__version__
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    assert machine_of(CPU) == here | {"threads": 7}


def test_the_key_on_cuda_names_the_gpu_and_not_the_threads(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    found = machine_of(torch.device("cuda", 1))
    assert (found["device"], found["gpu"], found["processor"]) == ("cuda", "GPU 1", processor_name())
    assert "threads" not in found


def test_other_precision_of_multiplications_is_another_key():
    before = torch.get_float32_matmul_precision()
    here = machine_of(CPU)
    try:
        torch.set_float32_matmul_precision("medium")
        assert machine_of(CPU) != here
    finally:
        torch.set_float32_matmul_precision(before)


def shortened(document: dict) -> str:
    return json.dumps(document)[:-20]


def without_a_key(document: dict) -> str:
    return json.dumps({name: entry for name, entry in document.items() if name != "workspace"})


def changed(**entries) -> Callable[[dict], str]:
    return lambda document: json.dumps(document | entries)


def of_fewer_operations(document: dict) -> str:
    return json.dumps(document | {"seconds": document["seconds"][1:], "workspace": document["workspace"][1:]})


def with_one(name: str, entry: object) -> Callable[[dict], str]:
    return lambda document: json.dumps(document | {name: [entry, *document[name][1:]]})


@pytest.mark.parametrize(
    "damage",
    [
        shortened,
        without_a_key,
        of_fewer_operations,
        changed(version=1),
        thorough(changed(format="remat-explorer/graph")),
        changed(key={"graph": "another"}),
        thorough(changed(seconds=None)),
        changed(workspace=[0]),
        thorough(with_one("seconds", 0.0)),
        with_one("seconds", float("nan")),
        thorough(with_one("seconds", "fast")),
        with_one("workspace", -1),
        thorough(with_one("workspace", 0.5)),
        thorough(lambda document: "[]"),
        lambda document: "",
    ],
)
def test_a_broken_file_is_measured_again_and_mended(folder, damage):
    profiled(convolution())
    path = only_file(folder)
    path.write_text(damage(json.loads(path.read_text())))
    mended, ran = profiled(convolution())
    assert ran > 0
    assert profiled(convolution()) == (mended, 0)
    assert only_file(folder) == path


def test_a_file_that_is_no_text_is_measured_again(folder):
    profiled(convolution())
    only_file(folder).write_bytes(b"\xff\xfe\x00")
    assert profiled(convolution())[1] > 0


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file" / "cache"))
    assert profiled(convolution())[1] > 0
    assert profiled(convolution())[1] > 0


def test_a_cancelled_profile_leaves_nothing(folder):
    with pytest.raises(ExecutionError, match="cancelled"):
        profiled(convolution(), cancelled=lambda: True)
    assert not folder.exists()


def test_the_folder_is_the_users_unless_the_environment_names_another(folder, monkeypatch):
    assert cache_folder() == folder
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", "")
    assert cache_folder() == Path(platformdirs.user_cache_dir("remat_explorer"))
    monkeypatch.delenv("REMAT_EXPLORER_CACHE")
    assert cache_folder() == Path(platformdirs.user_cache_dir("remat_explorer"))
