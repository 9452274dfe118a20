"""A person's own model on the command line: `file.py:function`, and every way in which it can go wrong."""

import json
import sys
from pathlib import Path

import pytest

from remat_explorer.cli import main
from remat_explorer.graph import Graph

pytestmark = pytest.mark.usefixtures("kept_workers")

BLOCKS = """
from torch import nn

def block(width):
    return nn.Sequential(nn.Linear(width, width), nn.GELU())
"""
NET = """
from dataclasses import dataclass

import torch
from own_blocks import block
from torch import nn


@dataclass
class Sizes:
    width: int = 16


def make_model():
    return nn.Sequential(*[block(Sizes().width) for _ in range(3)]), (torch.ones(32, 16),)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x, scale):
        return {"out": scale * self.linear(x)}


def with_all():
    return Scaled(), (torch.ones(2, 16),), {"scale": torch.ones(16)}, lambda output: output["out"].pow(2).mean()


def with_kwargs():
    return Scaled(), [torch.ones(2, 16)], {"scale": torch.ones(16)}
"""


MAKE = "import torch\nlayer = torch.nn.Linear(2, 2)\ndef make(): return"


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "own_blocks.py").write_text(BLOCKS)
    (tmp_path / "net.py").write_text(NET)
    return str(tmp_path / "net.py")


def captured(path: Path, function: str) -> Graph:
    target = str(path.with_suffix(".json"))
    assert main(["capture", f"{path}:{function}", "-o", target, "--json"]) == 0
    return Graph.load(target)


def refused(capsys, *arguments: str) -> str:
    assert main(arguments) == 64
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    return shown.err


def test_a_function_of_a_file_is_captured_with_what_its_folder_has(net, monkeypatch):
    before = list(sys.path)
    monkeypatch.chdir(Path(net).parent)
    graph = captured(Path("net.py"), "make_model")
    assert graph.name == "Sequential"
    assert [node.name for node in graph.operations][:2] == ["0.0 linear", "0.1 gelu"]
    assert sys.path == before


def test_keyword_inputs_and_loss_are_taken(net):
    alone, with_loss = captured(Path(net), "with_kwargs"), captured(Path(net), "with_all")
    assert not any("pow" in node.name for node in alone.operations)
    assert any("pow" in node.name for node in with_loss.operations)


def test_a_file_may_have_the_name_of_a_library(tmp_path, capsys):
    path = tmp_path / "networkx.py"
    path.write_text(NET.replace("from own_blocks import block", "from torch.nn import Identity as block"))
    assert main(["show", f"{path}:with_all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["articulation_points"]


def test_solve_and_run_take_it_too(net, capsys):
    assert main(["solve", f"{net}:make_model", "--budget", "100%", "--costs", "H100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "optimal"
    assert main(["run", f"{net}:with_all", "--budget", "100%", "--device", "cpu", "--repeats", "1"]) == 0
    assert "gradients equal: max difference 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("", "names no function of the file; write"),
        ("make_modle", "'make_modle'; did you mean 'make_model'"),
        ("torch", "'torch'. Known: "),
    ],
)
def test_a_function_that_is_not_there_is_named(net, capsys, function, message):
    assert message in refused(capsys, "show", f"{net}:{function}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\ndef f(:\n", "failed at line 2: SyntaxError: invalid syntax"),
        ("x = 1\nimport no_such_library\n", "failed at line 2: ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = 1\n", "defines no function, so none called 'make' that makes a model"),
        ("def make(batch): ...", "missing a required argument: 'batch'; give every parameter a default"),
        ("def make():\n    raise ValueError('no weights\\nat all')", "failed at line 2: "),
        ("def make(): ...", "gave None; return (model, args), (model, args, kwargs) or"),
        (f"{MAKE} layer, torch.ones(2, 2)", "gave one Tensor as args; return (model, args)"),
        (f"{MAKE} layer, (torch.ones(2, 2),), {{}}, 3", "gave one int as loss"),
        (f"{MAKE} layer.requires_grad_(False), (torch.ones(2, 2),)", "no parameter that requires a gradient"),
    ],
)
def test_a_file_that_makes_no_model_says_where_and_why_in_one_line(tmp_path, capsys, content, message):
    path = tmp_path / "net.py"
    path.write_text(content)
    assert message in refused(capsys, "show", f"{path}:make")


def test_sizes_do_not_apply_to_a_file(net, capsys):
    message = refused(capsys, "show", f"{net}:make_model", "--image", "4")
    assert "--image 4 does not apply to" in message
    assert "the function of a file chooses its own inputs" in message
