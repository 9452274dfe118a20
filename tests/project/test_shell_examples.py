"""Every command that README, docs, notebooks and --help show is run as it stands there, or in a size of a table.

The lines of a page run in their order, in one temporary folder for all pages, and each line once. A line that is not
run stands in `NOT_RUN` with the reason; what it names is looked up: targets, files, options.
"""

import argparse
import contextlib
import importlib.util
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remat_explorer.cli.parser import make_parser
from tests.project.pages import ROOT, is_target, page
from tests.project.shell import run
from tests.thorough import thorough

pytestmark = pytest.mark.usefixtures("kept_workers")

HELP = "--help"
PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
NOTEBOOKS = tuple(f"notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.ipynb")))
LANGUAGES = {"sh", "python", "json", "toml", "bibtex", "text"}

# What is not run, as regular expressions: why.
NOT_RUN = {
    r"^make ": "sets up an environment, serves, or runs these tests",
    r"^python3 -m venv |^(\.venv/bin/)?pip install ": "needs a network",
    r"^conda ": "needs conda",
    r"^\.venv/bin/python -m pytest ": "runs other tests",
    r"remat-explorer lab\b": "serves until it is stopped; test_launching does that",
    r"^remat-explorer app\b": "serves until it is stopped; test_launching does that",
    r"benchmarks/(arena|arena_text|gpu_bundle|interface|monet|solver)\.py": "takes minutes",
    r"benchmarks/gpu\.py --out ": "measures for minutes, on a GPU; test_gpu_parts runs its parts",
}

# What stands in a line, and what is run instead.
SHORTER = {
    "capture vgg16": "capture residual_net",
    "solve unet": "solve residual_net",
    "capture gpt2": "capture mlp --batch 4",
    "residual_net --batch 32": "residual_net --batch 4",
    " --time-limit 20": " --time-limit 10",
    "checkmate-figure-6 -o": "checkmate-appendix-a -o",
    "residual_net --implementations exact": "chain --implementations exact",
    "fit llama3_8b": "fit llama3_8b --layers 1 --sequence 64 --time-limit 1",
    "--sequence 4096": "--layers 1 --sequence 64 --time-limit 1",
    "80% --strategy pytorch-budget": "90% --strategy pytorch-budget",
    "residual_net --overhead": "mlp --overhead",
    "--execute --sweep": "--execute --sweep 2",
    "--sweep 24": "--sweep 2",
    'vgg16 --vary image --batch 8 --memory "16 GB"': 'residual_net --vary image --batch 8 --memory "64 MB"',
    'segnet --batch 4 --image 128 --budgets "80%,65%"': "vgg16 --image 32 --budgets 99%",  # where all is proven
    " --full": "",
    "--tables results": "--tables benchmarks/results/gpu",  # of the lines above, which are not run
}

# What takes seconds even so: `make test` parses it, `make thorough` runs it.
SLOW = (
    "--solver cbc",
    "pytorch-budget",
    "explorer max-batch",
    "explorer sweep",
    "--overhead ",
    "explorer ablation",
    "policy gpt2",
    "report residual_net",
    "--full",
)

# Lines that end with another exit code than 0: the code, a part of the output, and why.
CODES = {"--strategy pytorch-budget": (3, ": feasible, overhead", "the method proves no bound, says command-line.md")}

MODEL = """
import torch

def make_model():
    return torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6))), (torch.ones(64, 8),)
"""

COMMAND = re.compile(r"\s*(\$ |!)?(\S*/)?(remat-explorer|python3?|make|pip|conda|git|apt-get) ")
NEEDS_BASH = re.compile(r"^\w+=|[|<>&;$`*~(){}]")


def texts(name: str) -> list[str]:
    """What a reader sees of a page, in parts: of a notebook the cells, those of code as blocks of their language."""
    if name == HELP:
        children = next(a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction)).choices.values()
        shown = dict.fromkeys(parser.epilog or "" for parser in (make_parser(), *children))
        return [f"```sh\n{text.partition('examples:')[2].partition(chr(10) * 2)[0]}\n```" for text in shown]
    if name not in NOTEBOOKS:
        return [page(name)]
    cells = json.loads(page(name))["cells"]
    return ["".join(cell["source"]) if cell["cell_type"] == "markdown" else fenced(cell) for cell in cells]


def fenced(cell: dict) -> str:
    source = "".join(cell["source"])
    if source.startswith("%%"):
        return "```sh\n{}\n```".format(source.partition("\n")[2]) if source.startswith(("%%bash", "%%sh")) else ""
    return "```sh\n{}\n```".format("\n".join(line[1:] for line in source.splitlines() if line[:1] == "!"))


def lines_of(name: str) -> Iterator[tuple[str, str, str]]:
    """Place, language of the block ("" outside of one), and text of every line of a page."""
    for part, text in enumerate(texts(name)):
        language, before = "", ""
        for number, line in enumerate(text.splitlines(), 1):
            place = f"{name}, cell {part}, line {number}" if name in NOTEBOOKS else f"{name}:{number}"
            if fence := re.match(r"\s*(?:```|~~~)(.*)$", line):
                language = "" if language else fence[1].strip() or "none"
            elif language == "sh" and line.endswith("\\"):
                before += line[:-1]
            else:
                yield place, language, before + line
                before = ""


def commands(name: str) -> list[tuple[str, str]]:
    found = ((place, line.strip().removeprefix("$ ")) for place, language, line in lines_of(name) if language == "sh")
    return [(place, line) for place, line in found if line and not line.startswith("#")]


COMMANDS = {name: commands(name) for name in (*PAGES, HELP, *NOTEBOOKS)}
LINES = [line for found in COMMANDS.values() for _, line in found]


def test_all_that_looks_like_a_command_is_in_a_block_of_the_shell() -> None:
    for name in (*PAGES, *NOTEBOOKS):
        for place, language, line in lines_of(name):
            assert language in LANGUAGES | {""}, f"{place}: write ```sh or ```text, not {language!r}"
            hidden = language == "text" or (language == "" and line.startswith(("    ", "$ ")))
            assert not (hidden and COMMAND.match(line)), f"{place}: write it in a block ```sh: {line}"
    assert len(COMMANDS["README.md"]) == 6
    assert len(COMMANDS[HELP]) > 20


@pytest.mark.parametrize("entry", [*NOT_RUN, *SLOW, *map(re.escape, (*SHORTER, *CODES))])
def test_every_entry_of_the_tables_is_about_a_line(entry: str) -> None:
    assert any(re.search(entry, line) for line in LINES)


def is_slow(line: str) -> bool:
    return any(text in line for text in SLOW)


def pages_with(found: Callable[[str], bool]) -> list[str]:
    return [name for name, commands in COMMANDS.items() if any(found(line) for _, line in commands)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What readers have: this checkout's benchmarks, files of their own, and the programs."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    for path in ("docs", "path/to", "programs"):
        (folder / path).mkdir(parents=True)
    for path in ("net.py", "path/to/file.py"):
        (folder / path).write_text(MODEL)
    for program, words in {"python": "", "remat-explorer": "-P -m remat_explorer.cli"}.items():
        path = folder / "programs" / program
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        path.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def done() -> set[str]:
    return set()


@pytest.mark.parametrize(
    ("name", "slow"),
    [*((name, False) for name in pages_with(bool)), *(thorough(name, True) for name in pages_with(is_slow))],
)
def test_every_command_of_a_page_works(
    name: str, slow: bool, folder: Path, done: set[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{folder / 'programs'}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    failures = []
    for place, line in COMMANDS[name]:
        only_parsed = is_slow(line) and not slow
        if line in done:
            continue
        if problem := tried(line, only_parsed, monkeypatch, capsys):
            failures.append(f"{place}: {line}\n{problem}")
        elif not only_parsed:
            done.add(line)
    assert not failures, "\n\n".join(failures)


def tried(line: str, only_parsed: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    with contextlib.suppress(SystemExit, AssertionError, OSError):
        look_up(line, monkeypatch)
        if only_parsed or any(re.search(pattern, line) for pattern in NOT_RUN):
            return ""
        shorter = line
        for text, instead in SHORTER.items():
            shorter = shorter.replace(text, instead)
        words = shlex.split(shorter, comments=True)
        if words[0] == "remat-explorer" and not NEEDS_BASH.search(shorter):
            code, out, err = run(capsys, *words[1:])
        else:
            ran = subprocess.run(["bash", "-c", shorter], capture_output=True, text=True, check=False)
            code, out, err = ran.returncode, ran.stdout, ran.stderr
        wanted, shown = next((code[:2] for text, code in CODES.items() if text in line), (0, ""))
        if code == wanted and shown in out:
            return ""
        return f"run as: {shorter}\nexit code {code}, not {wanted} with {shown!r}\n{out}{err}"
    return f"it does not parse, or names what is not there\n{''.join(capsys.readouterr())}"


def look_up(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find what a line names: targets of make, options, files of the checkout.

    Raises:
        SystemExit, AssertionError or OSError: if something is not there.
    """
    words = shlex.split(re.sub(r"[|<>&;].*", "", line), comments=True)
    program = Path(words[0]).name
    if program == "make":
        assert all(is_target(word) for word in words[1:] if "=" not in word), line
    elif program == "remat-explorer":
        assert make_parser().parse_args(words[1:]).command, line
    elif program == "conda":
        assert all((ROOT / word).is_file() for word in words if word.endswith(".yml")), line
        assert words[1] != "activate" or f"name: {words[2]}\n" in page("environment.yml"), line
    elif program.startswith("python"):
        at = words.index("-m") + 1 if "-m" in words else 1
        if words[at] == "pytest":
            assert (ROOT / words[at + 1]).exists(), line
            chosen = words[at + 3] if "-k" in words else ""
            assert not chosen or re.search(rf"^def test_\w*{chosen}", page(words[at + 1]), re.MULTILINE), line
        elif "-m" in words:
            assert importlib.util.find_spec(words[at]), line
        else:
            parse_options_of(ROOT / words[1], words[1:], monkeypatch)


def parse_options_of(path: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a program read its options, and do nothing else."""
    if "argparse" not in path.read_text(encoding="utf-8"):
        return
    parse = argparse.ArgumentParser.parse_args

    def only_parse(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise StopIteration

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", only_parse)
        patch.setattr(sys, "argv", words)
        patch.syspath_prepend(str(path.parent))
        with pytest.raises(StopIteration):
            runpy.run_path(str(path), run_name="__main__")
