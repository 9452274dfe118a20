"""Files that commands write: what they may not replace is refused before the search, and names steer no terminal."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

import remat_explorer as rx
from remat_explorer.cli.output import OUTPUTS
from remat_explorer.errors import FileError
from tests.hostile_names import hostile
from tests.project.shell import run
from tests.project.test_docs import COMMANDS, options_of

NET = """
import torch

def make_model():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.ones(2, 4),), {}, lambda y: y.sum()
"""
WRITING = {
    "solve": ["--budget", "100%"],
    "sweep": ["--budgets", "2"],
    "ablation": ["--budgets", "2"],
    "max-batch": ["--memory", "100"],
    "minimum-budget": [],
    "policy": ["--budget", "100%"],
    "report": ["--budget", "100%"],
}
"""Commands with an output that take a graph file, and what else they need."""
OF_MODELS = {"capture": [], "fit": ["--memory", "1 GB"], "run": ["--budget", "100%"]}
"""Commands with an output that take a model."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a graph file, a model file, and a link to each."""
    monkeypatch.chdir(tmp_path)
    rx.linear(8).save("graph.json")
    Path("net.py").write_text(NET)
    Path("link.json").symlink_to("graph.json")
    Path("link.py").symlink_to("net.py")
    return tmp_path


@pytest.fixture
def nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph is read or captured, and nothing is searched for."""

    def begun(*given: object, **named: object) -> None:
        raise AssertionError("this is too late")

    for module in ("capacity", "execution", "graphs", "solving"):
        for name in ("find_graph", "find_source"):
            monkeypatch.setattr(f"remat_explorer.cli.{module}.{name}", begun, raising=False)


def test_every_command_with_an_output_is_tried_here() -> None:
    with_output = {name for name in COMMANDS if "--output" in options_of(name)}
    assert with_output == set(WRITING) | set(OF_MODELS)
    assert {f"--{name}" for name in OUTPUTS} >= {"--output", "--figure", "--graph", "--trace", "--snapshot"}


@pytest.mark.usefixtures("nothing_is_begun")
@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize(
    "named", [("graph.json", "./graph.json"), ("graph.json", "link.json"), ("link.json", "graph.json")]
)
def test_a_graph_file_is_not_replaced_by_what_is_made_of_it(capsys, folder, command, named):
    given, output = named
    before = (folder / "graph.json").read_bytes()
    code, out, err = run(capsys, command, given, *WRITING[command], "-o", output)
    assert (code, out) == (64, "")
    assert f"-o {output!r} would replace {given!r}, which the command reads; name another file" in err
    assert (folder / "graph.json").read_bytes() == before


@pytest.mark.usefixtures("nothing_is_begun")
@pytest.mark.parametrize("command", [*OF_MODELS, "report", "solve"])
@pytest.mark.parametrize(
    "named", [("net.py:make_model", "net.py"), ("link.py:make_model", "net.py"), ("net.py", "net.py")]
)
def test_the_code_of_a_model_is_not_replaced(capsys, folder, command, named):
    given, output = named
    code, out, err = run(capsys, command, given, *(OF_MODELS | WRITING)[command], "-o", output)
    assert (code, out) == (64, "")
    assert f"-o {output!r} would replace" in err
    assert (folder / "net.py").read_text() == NET


@pytest.mark.usefixtures("nothing_is_begun")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["ablation", "graph.json", "-o", "it", "--figure", "./it"],
            "--figure './it' would replace 'it', the file of -o",
        ),
        (
            ["fit", "net.py:make_model", "--memory", "1 GB", "-o", "it", "--graph", "it"],
            "--graph 'it' would replace 'it'",
        ),
        (["fit", "net.py:make_model", "--memory", "1 GB", "--graph", "net.py"], "--graph 'net.py' would replace"),
        (["run", "mlp", "--budget", "100%", "-o", "it", "--trace", "it"], "--trace 'it' would replace 'it'"),
        (["run", "mlp", "--budget", "100%", "--snapshot", "it", "--trace", "it"], "--snapshot 'it' would replace 'it'"),
        (["max-batch", "graph.json", "--memory", "99", "--larger", "link.json", "-o", "link.json"], "would replace"),
    ],
)
def test_two_outputs_do_not_share_a_file(capsys, folder, arguments, message):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (64, "")
    assert message in err
    assert not (folder / "it").exists()


@pytest.mark.usefixtures("nothing_is_begun")
@pytest.mark.parametrize("command", [*WRITING, *OF_MODELS])
@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "cannot write '': the name is empty"),
        ("x" * 256, "File name too long"),
        ("/".join(["y" * 250] * 20), "File name too long"),
        ("new/", "cannot write 'new/': it ends as the name of a folder does"),
        ("nowhere/it.json", "No such file or directory"),
        ("/proc/it.json", "cannot write '/proc/it.json'"),
        ("a\0b", "null"),
        ("-", "-o - is not written to standard output"),
    ],
    ids=["empty", "long", "path", "slash", "nowhere", "proc", "zero", "dash"],
)
def test_a_name_that_cannot_be_written_is_refused_before_the_search(capsys, folder, command, output, message):
    there = sorted(folder.iterdir())
    model = "graph.json" if command in WRITING else "net.py:make_model"
    code, out, err = run(capsys, command, model, *(WRITING | OF_MODELS)[command], "-o", output)
    assert (code, out) == (64, "")
    assert message in err
    assert sorted(folder.iterdir()) == there


def test_a_file_may_be_named_like_a_dash_and_an_output_that_is_there_is_replaced(capsys, folder):
    (folder / "-").write_text("before")
    assert run(capsys, "solve", "graph.json", "--budget", "100%", "-o", "./-")[0] == 0
    assert rx.Solution.load("-", rx.linear(8)).cost == 17
    assert {file.name for file in folder.iterdir()} == {"-", "graph.json", "link.json", "link.py", "net.py"}


@pytest.mark.parametrize("name", ["", "x" * 256, "new/", "nowhere/it", "a\0b"])
def test_saving_from_python_refuses_such_names_too(folder, name):
    solution = rx.solve(rx.linear(8), "100%")
    frontier = rx.sweep(rx.linear(2), ["100%"])
    for save in (
        rx.linear(2).save,
        solution.save,
        partial(rx.save_page, solution),
        partial(rx.save_policy, solution),
        frontier.save,
    ):
        with pytest.raises(FileError, match="cannot write"):
            save(name)
    with pytest.raises(FileError, match="cannot write"):
        rx.report(solution, name)


NAME = "a\x1b[2J\x07\nb.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ["capture", "net.py:make_model", "-o", NAME],
        ["fit", "net.py:make_model", "--memory", "1 GB", "--time-limit", "1", "-o", "it", "--graph", NAME],
        ["ablation", "graph.json", "--budgets", "100%,", "--figure", NAME],
        *([command, "graph.json", *given, "-o", NAME] for command, given in WRITING.items() if command != "policy"),
        ["show", NAME],
        ["solve", "graph.json", "--budget", NAME],
        ["solve", "graph.json", "--budget", "100%", f"--{NAME}"],
        ["solve", NAME.replace(".json", ""), "--budget", "100%"],
        ["max-batch", "graph.json", "--memory", "99", "--larger", NAME],
        ["sweep", "graph.json", "--strategies", NAME],
        ["capture", f"{NAME}.py:make", "-o", "it"],
        ["lab", NAME],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_name_with_control_characters_is_printed_as_python_shows_it(capsys, folder, arguments):
    _, out, err = run(capsys, *arguments)
    assert r"a\x1b[2J\x07\nb" in out + err or r"a\x1b[2J\x07\\nb" in out + err
    assert re.sub(r"[\n -~]|[^\x00-\x9f]", "", out + err) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["solve", "--budget", "1"],
        ["max-batch", "--memory", "1"],
        ["run", "--budget", "1"],
        *([name, *given] for name, given in WRITING.items() if name not in ("report", "policy")),
    ],
    ids=" ".join,
)
def test_names_within_a_graph_file_begin_no_line_and_steer_no_terminal(capsys, folder, arguments):
    command, *options = arguments
    options += ["--no-cache"] if "--no-cache" in options_of(command) else []  # an answer that is kept says so
    hostile(rx.linear(8)).save("hostile.json")
    lines = []
    for graph in ("graph.json", "hostile.json"):
        _, out, err = run(capsys, command, graph, *options)
        lines.append(len(out.splitlines()))
        assert re.sub(r"[\n -~]|[^\x00-\x9f]", "", out + err) == ""
        assert "\u2028" not in out + err
    assert lines[0] == lines[1]
