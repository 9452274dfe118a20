"""Files that commands write: what they may not replace is refused before the search, and names steer no terminal."""

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

pytestmark = pytest.mark.usefixtures("kept_workers")

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


def line(command: str, given: str, output: str) -> list[str]:
    return [command, given, *(WRITING | OF_MODELS)[command], "-o", output]


RUN = ["run", "mlp", "--budget", "100%"]


@pytest.mark.usefixtures("nothing_is_begun")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # what the command reads
        *((line(name, "graph.json", "./graph.json"), "which the command reads; name another file") for name in WRITING),
        (line("solve", "graph.json", "link.json"), "-o 'link.json' would replace 'graph.json'"),
        (line("solve", "link.json", "graph.json"), "-o 'graph.json' would replace 'link.json'"),
        *((line(name, "net.py:make_model", "net.py"), "would replace") for name in [*OF_MODELS, "report", "solve"]),
        (line("capture", "link.py:make_model", "net.py"), "would replace"),
        (line("capture", "net.py", "net.py"), "would replace"),
        (["fit", "net.py:make_model", "--memory", "1 GB", "--graph", "net.py"], "--graph 'net.py' would replace"),
        (["max-batch", "graph.json", "--memory", "99", "--larger", "link.json", "-o", "link.json"], "would replace"),
        # the file of another output
        (["ablation", "graph.json", "-o", "it", "--figure", "./it"], "--figure './it' would replace 'it'"),
        ([*RUN, "-o", "it", "--trace", "it"], "--trace 'it' would replace 'it'"),
        ([*RUN, "--snapshot", "it", "--trace", "it"], "--snapshot 'it' would replace 'it'"),
        # names that cannot be written
        *((line(name, "graph.json", "nowhere/it.json"), "No such file or directory") for name in WRITING),
        *((line(name, "net.py:make_model", "nowhere/it.json"), "No such file or directory") for name in OF_MODELS),
        (line("solve", "graph.json", ""), "cannot write '': the name is empty"),
        (line("solve", "graph.json", "x" * 256), "File name too long"),
        (line("solve", "graph.json", "new/"), "cannot write 'new/': it ends as the name of a folder does"),
        (line("solve", "graph.json", "/proc/it.json"), "cannot write '/proc/it.json'"),
        (line("solve", "graph.json", "a\0b"), "null"),
        (line("solve", "graph.json", "-"), "-o - is not written to standard output"),
    ],
)
def test_what_may_not_or_cannot_be_written_is_refused_before_the_search(capsys, folder, arguments, message):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (64, "")
    assert message in err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_may_be_named_like_a_dash_and_an_output_that_is_there_is_replaced(capsys, folder):
    (folder / "-").write_text("before")
    assert run(capsys, "solve", "graph.json", "--budget", "100%", "-o", "./-")[0] == 0
    assert rx.Solution.load("-", rx.linear(8)).cost == 17
    assert {file.name for file in folder.iterdir()} == {"-", "graph.json", "link.json", "link.py", "net.py"}


@pytest.mark.parametrize("name", ["", "x" * 256, "new/", "nowhere/it", "a\0b"])
def test_saving_from_python_refuses_such_names_too(folder, name):
    solution = rx.solve(rx.linear(8), "100%")
    frontier = rx.sweep(rx.linear(2), ["100%"])
    of_solution = (partial(save, solution) for save in (rx.save_page, rx.save_policy, rx.report))
    for save in (rx.linear(2).save, solution.save, frontier.save, *of_solution):
        with pytest.raises(FileError, match="cannot write"):
            save(name)


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
