"""What the README and the pages of docs/ show works: programs run, files load, and everything that is named exists."""

import argparse
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.capture_options import KINDS
from remat_explorer.cli import output
from remat_explorer.cli.parser import make_parser
from remat_explorer.graph import Graph
from remat_explorer.graph.file import dump_graph
from remat_explorer.solvers import STRATEGIES
from reproduction.__main__ import make_parser as reproduction_parser
from tests.project.pages import ROOT, blocks, links, named_files, page
from tools import strategies_table

PAGES = [path.stem for path in sorted((ROOT / "docs").glob("*.md"))]
SUBPARSERS = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
COMMANDS: dict[str, argparse.ArgumentParser] = dict(SUBPARSERS.choices)
SHORTER = {'"residual_net", batch=16': '"residual_net", batch=2', "time_limit=5)": "time_limit=1)"}  # in programs


def options_of(command: str) -> set[str]:
    found = (option for action in COMMANDS[command]._actions for option in action.option_strings)
    return {option for option in found if option.startswith("--") and option != "--help"}


def sections(text: str) -> dict[str, str]:
    """What stands below each heading of the second level."""
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever an example adds to a registry is gone after it."""
    from remat_explorer.capture.implementations import alternatives
    from remat_explorer.models import MODELS

    monkeypatch.setattr(alternatives, "PATTERNS", alternatives.PATTERNS)
    registered: tuple[dict[str, Any], ...] = (MODELS, STRATEGIES)
    before = [dict(entries) for entries in registered]
    yield
    for entries, known in zip(registered, before, strict=True):
        for name in entries.keys() - known.keys():
            del entries[name]


def run(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the Python of a page prints, all blocks as one program."""
    names: dict[str, Any] = {"__name__": "__main__"}  # as in a notebook: generated code names a function's module
    for block in blocks(page(f"docs/{name}.md"), "python"):
        for text, instead in SHORTER.items():
            block = block.replace(text, instead)
        exec(block, names)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{name}.md" for name in PAGES)]
)
def test_every_file_and_page_that_is_named_exists(name: str) -> None:
    text, folder = page(name), (ROOT / name).parent
    for path in [ROOT / path for path in named_files(text)] + [folder / target for target in links(text)]:
        assert path.exists(), path


def test_every_command_has_a_section_and_every_option_a_place() -> None:
    found = sections(page("docs/command-line.md"))
    shared = shared_options(found)
    for command in COMMANDS:
        assert command in found, f"docs/command-line.md has no section {command!r}"
        own = set(re.findall(r"^\| `(--[\w-]+)`", found[command], re.MULTILINE))
        listed = {option for option, where in shared.items() if command in where}
        assert own | listed == options_of(command), command
        assert not own & listed, command


def shared_options(found: dict[str, str]) -> dict[str, list[str]]:
    """For each option of the shared table the commands that it is said to be of."""
    rows = re.findall(
        r"^\| `(--[\w-]+)`(?:, `-\w`)? \| ([^|]+) \|", found["Options that several commands share"], re.MULTILINE
    )
    text = found["Options that several commands share"]
    everything = re.split(", | and ", re.findall(r"\*all\* are ([^.]+)\.", text)[0])
    return {option: named_commands(where, everything) for option, where in rows}


def named_commands(where: str, everything: list[str]) -> list[str]:
    """Of "all but run and report, doctor" the names."""
    if (found := re.match(r"all(?: but ([\w-]+)(?: and ([\w-]+))?)?(?:, |$)", where)) is None:
        return where.split(", ")
    rest = where[found.end() :]
    return [name for name in everything if name not in found.groups()] + (rest.split(", ") if rest else [])


@pytest.mark.parametrize("name", PAGES)
def test_every_option_that_is_named_exists(name: str) -> None:
    known = {option for command in COMMANDS for option in options_of(command)} | {"--help", "--version"}
    known |= set(reproduction_parser()._option_string_actions)
    known |= {"--index-url", "--from", "--spec"}  # of pip, uvx and pipx
    named = set(re.findall(r"`(?:[\w-]+ )*(--[a-z][\w-]*)", page(f"docs/{name}.md")))
    assert named <= known


def test_the_exit_codes_are_those_of_the_commands() -> None:
    listed = re.findall(r"^\| (\d+) \|", sections(page("docs/command-line.md"))["Exit codes"], re.MULTILINE)
    codes = (output.DONE, output.CONTRADICTED, output.INFEASIBLE, output.NOT_IN_TIME, output.BAD_INPUT)
    assert tuple(map(int, listed)) == (*codes, output.MISSING, output.INTERRUPTED)


def test_the_example_files_load_and_are_what_is_written() -> None:
    graph, solution, sweep, _ = map(json.loads, blocks(page("docs/file-formats.md"), "json"))
    chain = Graph.from_document(graph)
    assert chain.sha256 == rx.linear(1).sha256
    assert rx.Solution.from_document(solution, chain).to_document() == solution
    frontier = rx.Frontier.from_document(sweep, rx.linear(2))
    assert frontier.to_document() == sweep


def test_the_tables_of_file_formats_name_every_key() -> None:
    import torch

    text, model = page("docs/file-formats.md"), torch.nn.Linear(2, 1)
    graph = rx.capture(model, (torch.ones(1, 2),), loss=lambda y: y.mean(), implementations="exact")
    named = set(re.findall(r"`(?:[\w.]*\[\]\.|\.)?(\w+)`", text)) | {"format", "version"}
    written = json.loads(dump_graph(graph, details=True))
    sweep = json.loads(blocks(text, "json")[2])
    for document in (written, rx.solve(graph, "100%").to_document(), sweep):
        assert keys(document) <= named


def keys(document: object) -> set[str]:
    if isinstance(document, dict):
        return set(document).union(*map(keys, document.values()))
    return set().union(*map(keys, document)) if isinstance(document, list) else set()


def test_a_graph_of_another_program_is_solved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("file-formats", capsys) == ["1504"]


@pytest.mark.usefixtures("registries")
def test_the_examples_of_extending_work(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run("extending", capsys)
    assert printed[0].startswith("strategy every-nth: feasible")
    assert printed[1].startswith("strategy every-nth: feasible")
    assert any(line.startswith("tiny: ") for line in printed)
    assert "from the input gradients equal: True" in printed


def test_the_entry_point_of_extending_is_that_of_the_package() -> None:
    from remat_explorer.solvers.registry import GROUP

    (block,) = blocks(page("docs/extending.md"), "toml")
    assert list(tomllib.loads(block)["project"]["entry-points"]) == [GROUP]


def test_the_errors_of_limits_are_raised(capsys: pytest.CaptureFixture[str]) -> None:
    branch, read, strategies, least, changed = run("limits", capsys)
    assert "torch.where" in branch
    assert read.startswith("6 is read out of input 1 at ")
    bounds = list(map(int, least.split()))
    assert bounds == sorted(bounds)
    assert strategies == "['optimal', 'checkpoint-all']"
    assert "attribute p of '1' (Dropout) is 0.2, but the plan was made for 0.1" in changed


@pytest.mark.thorough  # tests of the runtime show each loop
def test_every_loop_of_training_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torchrun = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in torchrun.items():
        monkeypatch.setenv(name, value)
    printed = "\n".join(run("training", capsys))
    assert re.search(r"^keeping everything takes \d+, the least known is \d+$", printed, re.MULTILINE)
    assert "optimal: " in printed
    assert len(re.findall(r"^\d\.\d+$", printed, re.MULTILINE)) == 2  # the losses of Trainer, without peft and with it
    assert (tmp_path / "runs" / "adapters" / "adapter_config.json").is_file()
    assert "policy: " in printed
    assert printed.endswith("torch.float32")


def test_installation_names_what_the_project_asks_for() -> None:
    project = tomllib.loads(page("pyproject.toml"))["project"]
    torch = next(entry for entry in project["dependencies"] if entry.startswith("torch>"))
    oldest, below = re.findall(r"2\.(\d+)", torch)
    text = page("docs/installation.md")
    assert f"Python {project['requires-python'].removeprefix('>=')} or newer" in text
    assert f"PyTorch 2.{oldest} to 2.{int(below) - 1}" in text


def test_the_papers_are_cited_alike_in_words_and_in_bibtex() -> None:
    text = page("docs/citing.md")
    entries = blocks(text, "bibtex")
    assert len(entries) == 2
    for entry in entries:
        words = text.replace(entry, "")
        title, number = (re.search(rf"{key}\s*= {{(.+)}}", entry) for key in ("title", "eprint"))
        assert title is not None
        assert number is not None
        assert title[1] in words
        assert f"arXiv {number[1]}" in words


@pytest.mark.parametrize("name", ["implementations", "models", "search", "strategies"])
def test_the_python_of_a_page_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, capsys)


def test_the_table_of_strategies_is_current() -> None:
    text = page("docs/strategies.md")
    shown = text.partition(strategies_table.BEGINS)[2].partition(strategies_table.ENDS)[0].strip()
    assert shown == strategies_table.strategies_table(), "run: python -m tools.strategies_table"


def test_every_kind_of_implementation_is_in_the_table() -> None:
    found = re.findall(r"^\| `([\w-]+)` \| .* \| (yes|no) \|$", page("docs/implementations.md"), re.MULTILINE)
    assert {name: answer == "yes" for name, answer in found} == KINDS
