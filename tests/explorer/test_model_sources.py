"""The models to choose from: the zoo with its sizes to begin with, and files of the working directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer import models
from remat_explorer.errors import UnknownNameError
from remat_explorer.explorer.work.model_sources import DEFAULT_SIZES, MAX_LISTED, list_model_files
from remat_explorer.models import MODELS
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget
from tests.explorer.driven import settled
from tests.thorough import thorough_but

SAVING = ["linear32", "mlp", "residual_net", "resnet18", "segnet", "unet", "vgg16"]
NET = """
import torch
from torch import nn

def make_model():
    return nn.Sequential(*[nn.Linear(8, 8) for _ in range({layers})]), (torch.ones(4, 8),)
"""
QUIET: Any = {"measured_costs": False, "sweep": False, "improve": False}


@pytest.mark.parametrize("name", models.names())
def test_every_model_begins_with_a_size_that_it_takes_no_larger_than_the_published_one(name):
    begin, published = DEFAULT_SIZES[name], models.published_size(name)
    size = MODELS[name].sizes.choose(name, begin["batch"], begin.get("image"), begin.get("sequence"))
    assert max(size.image or (0,)) <= max(published.image or (0,))
    assert (size.sequence or 0) <= (published.sequence or 0)


def test_the_list_of_models_is_the_zoo():
    assert tuple(DEFAULT_SIZES) == models.names()


@pytest.mark.parametrize("name", thorough_but(SAVING, "linear32", "mlp", "residual_net", "unet"))
def test_a_model_begins_where_at_least_a_quarter_of_its_memory_can_be_saved(name):
    begin = DEFAULT_SIZES[name]
    graph = models.load(name, begin["batch"], begin.get("image"), begin.get("sequence")).graph
    assert minimum_budget(graph).known_feasible <= 0.75 * checkpoint_all_peak(graph)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_files_are_listed_without_being_run(folder: Path) -> None:
    (folder / "net.py").write_text("open('ran', 'w')\ndef make_model(): ...")
    (folder / "broken.py").write_text("def make_model(:\n    pass")
    (folder / "method.py").write_text("class Net:\n    def make_model(self): ...")
    (folder / "caller.py").write_text("from net import make_model\nmake_model()")
    (folder / "large.py").write_text("def make_model(): ...\n" + "#" * 600_000)
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.py").write_text("def make_model(): ...")
    assert list_model_files(folder) == ["broken.py:make_model", "net.py:make_model"]
    assert not (folder / "ran").exists()


def test_no_more_files_are_listed_than_a_person_can_choose_from(folder: Path) -> None:
    for number in range(2 * MAX_LISTED):
        (folder / f"net{number}.py").write_text("def make_model(): ...")
    assert len(list_model_files(folder)) == MAX_LISTED


def test_a_file_is_chosen_edited_and_loaded_again(folder: Path) -> None:
    (folder / "net.py").write_text(NET.format(layers=3))
    explorer = settled(rx.Explorer("net.py:make_model", **QUIET))
    first = explorer.state.graph.n
    assert explorer.state.no_execution == ""
    (folder / "net.py").write_text(NET.format(layers=5))
    (folder / "other.py").write_text(NET.format(layers=2))
    controls = explorer._views[0]
    model = controls._fields["model"][1]
    assert "other.py:make_model" not in model.options
    controls.refresh.click()
    settled(explorer)
    assert explorer.state.graph.n > first
    assert {"net.py:make_model", "other.py:make_model", "vgg16"} <= set(model.options)
    assert controls._fields["batch"][1].disabled
    model.value = "other.py:make_model"
    settled(explorer)
    assert explorer.state.graph.n < first


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def make_model():\n    return 1 / 0\n", "make_model() of 'net.py' failed at line 2: ZeroDivisionError"),
        ("import torch\ndef make_model(:\n", "at line 2: SyntaxError"),
        ("def make_model():\n    return 3\n", "gave one int; return (model, args)"),
        (
            "import torch\nclass Net(torch.nn.Linear):\n    def forward(self, x):\n        return x.view(17)\n"
            "def make_model():\n    return Net(3, 3), (torch.ones(3),)\n",
            "net.py:4",
        ),
    ],
)
def test_an_error_in_the_file_becomes_a_sentence_with_file_and_line(folder: Path, source: str, said: str) -> None:
    (folder / "net.py").write_text(source)
    explorer = settled(rx.Explorer("net.py:make_model", **QUIET))
    assert explorer.state.tone == "error"
    assert said in explorer.state.status
    assert "net.py" in explorer.state.status
    assert "Traceback" not in explorer.state.status


def test_a_module_of_ones_own_leaves_the_zoo_to_choose_from() -> None:
    import torch

    module = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
    explorer = settled(rx.Explorer(module, (torch.ones(4, 8),), **QUIET))
    model, batch = (explorer._views[0]._fields[name][1] for name in ("model", "batch"))
    assert model.options[0] == "Sequential"
    assert "mlp" in model.options
    assert batch.disabled
    own = explorer.state.graph
    model.value = "mlp"
    settled(explorer)
    assert explorer.state.graph.n != own.n
    assert not batch.disabled
    model.value = "Sequential"
    settled(explorer)
    assert explorer.state.graph.n == own.n


def test_a_name_that_is_neither_model_nor_file_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'vg16'"):
        rx.Explorer("vg16")
