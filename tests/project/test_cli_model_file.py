"""A person's own model on the command line: `file.py:function`, and every way in which it can go wrong."""

import json
import sys
from pathlib import Path

import pytest

from remat_explorer.cli import main
from remat_explorer.graph import Graph

BLOCKS = """
from torch import nn

def block(width):
    return nn.Sequential(nn.Linear(width, width), nn.GELU())
"""
NET = """
from __future__ import annotations

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


def needs_batch(batch):
    return make_model()


def raises():
    raise ValueError("no weights\\nat all")


def leaves():
    raise SystemExit(3)


def gives_nothing():
    pass


def gives_module():
    return nn.Linear(2, 2)


def gives_tensor():
    return nn.Linear(2, 2), torch.ones(2, 2)


def gives_function():
    return make_model, (torch.ones(2, 2),)


def gives_list():
    return nn.Linear(2, 2), (torch.ones(2, 2),), [1]


def gives_number():
    return nn.Linear(2, 2), (torch.ones(2, 2),), {}, 3


def gives_five():
    return 1, 2, 3, 4, 5


def counts():
    return nn.Linear(2, 2).requires_grad_(False), (torch.ones(2, 2),)
"""


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
    assert "Traceback" not in shown.err
    assert len(shown.err.splitlines()) == 1
    return shown.err


def test_a_function_of_a_file_is_captured_with_what_its_folder_has(net):
    before = list(sys.path)
    graph = captured(Path(net), "make_model")
    assert (graph.name, sum(graph.is_backward)) == ("Sequential", graph.n - sum(~graph.is_backward))
    assert [node.name for node in graph.operations][:2] == ["0.0 linear", "0.1 gelu"]
    assert sys.path == before


def test_keyword_inputs_and_loss_are_taken(net):
    alone, with_loss = captured(Path(net), "with_kwargs"), captured(Path(net), "with_all")
    assert not any("pow" in node.name for node in alone.operations)
    assert any("pow" in node.name for node in with_loss.operations)


def test_a_path_may_be_relative(net, monkeypatch, capsys):
    monkeypatch.chdir(Path(net).parent)
    assert main(["show", "net.py:make_model", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["graph"] == "Sequential"


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
        ("make model", "names no function of the file; write"),
        ("make_modle", "'make_modle'; did you mean 'make_model'"),
        ("Sizes.width", "names no function of the file"),
        ("torch", "'torch'. Known: "),
        ("needs_batch", "missing a required argument: 'batch'; give every parameter a default"),
        ("raises", "raises() of "),
        ("raises", f"failed at line {NET[: NET.index('raise ValueError')].count(chr(10)) + 1}: "),
        ("leaves", "SystemExit: 3"),
        ("gives_nothing", "gives_nothing() of "),
        ("gives_nothing", "gave None; return (model, args), (model, args, kwargs) or"),
        ("gives_module", "gave one Linear; return (model, args)"),
        ("gives_tensor", "gave one Tensor as args; return (model, args)"),
        ("gives_function", "gave one function as model"),
        ("gives_list", "gave one list as kwargs"),
        ("gives_number", "gave one int as loss"),
        ("gives_five", "gave a tuple (int, int, int, int, int)"),
        ("counts", "no parameter that requires a gradient"),
    ],
)
def test_what_is_wrong_with_a_function_is_said_in_one_line(net, capsys, function, message):
    assert message in refused(capsys, "show", f"{net}:{function}")


def test_a_file_without_a_function_is_asked_for_one(net, capsys):
    assert f"'{net}' names no function of the file; write {net}:make_model" in refused(capsys, "show", net)


def test_a_file_that_is_not_there_is_named(capsys):
    assert "cannot read 'no/such.py': there is no such file" in refused(capsys, "show", "no/such.py:make")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\ndef f(:\n", "failed at line 2: SyntaxError: invalid syntax"),
        ("x = 1\nimport no_such_library\n", "failed at line 2: ModuleNotFoundError: No module named 'no_such_library'"),
        ("x = 1\n", "defines no function, so none called 'make' that makes a model"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_where(tmp_path, capsys, content, message):
    path = tmp_path / "net.py"
    path.write_text(content)
    assert message in refused(capsys, "show", f"{path}:make")


@pytest.mark.parametrize("option", ["--batch", "--image"])
def test_sizes_do_not_apply_to_a_file(net, capsys, option):
    message = refused(capsys, "show", f"{net}:make_model", option, "4")
    assert f"{option} 4 does not apply to" in message
    assert "the function of a file chooses its own inputs" in message
