"""Standard streams as a shell can leave them, and Ctrl-C at any moment: no traceback, and a documented code."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear
from tests.project.shell import customized, hear_interrupts, run

COMMAND = [sys.executable, "-m", "remat_explorer.cli"]


@pytest.fixture
def umlauts(tmp_path: Path) -> str:
    """A graph whose names ASCII does not have."""
    document = json.loads(dump_graph(linear(2)))
    document["name"], document["values"][0]["name"] = "Größe", "層"
    path = tmp_path / "umlauts.json"
    path.write_text(json.dumps(document))
    return str(path)


def called(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[bytes]:
    """A command whose streams are buffered, as a shell's are, whatever the environment says."""
    given = {"env": {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}, **settings}
    return subprocess.run([*COMMAND, *arguments], capture_output="stdout" not in settings, timeout=300, **given)


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_names_that_a_terminal_does_not_have_are_printed_with_escapes(
    umlauts: str, environment: dict[str, str]
) -> None:
    ended = called("show", umlauts, env=os.environ | {"PYTHONCOERCECLOCALE": "0"} | environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert rb"Gr\xf6\xdfe" in ended.stdout
    assert rb"\u5c64" in ended.stdout


@pytest.mark.parametrize(("what", "code"), [("GRAPH", 0), ("missing.json", 64)])
def test_a_command_whose_standard_streams_are_all_closed_ends_as_ever(umlauts: str, what: str, code: int) -> None:
    line = f"exec {' '.join(COMMAND)} solve {umlauts if what == 'GRAPH' else what} --budget 100% <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", line], check=False, timeout=300).returncode == code


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is one of Linux")
def test_a_standard_output_that_is_full_is_said_so_and_a_standard_error_changes_nothing(umlauts: str) -> None:
    with open("/dev/full", "wb") as full:
        ended = called("show", umlauts, stdout=full, stderr=subprocess.PIPE)
        assert called("show", "missing.json", stdout=subprocess.PIPE, stderr=full).returncode == 64
    assert ended.returncode == 64
    assert ended.stderr.decode().splitlines() == [
        "remat-explorer: the result cannot be written to standard output: No space left on device"
    ]


def test_a_disk_without_room_is_said_so_and_keeps_nothing_of_a_file(tmp_path: Path, chain: str) -> None:
    target = tmp_path / "solution.json"
    ended = called(
        *("solve", chain, "--budget", "100%", "--strategy", "checkpoint-all", "--no-cache", "-o", str(target)),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
    )
    assert ended.returncode == 64
    (line,) = ended.stderr.decode().splitlines()
    assert line.endswith(f"; it could not be written to {str(target)!r}: File too large")
    assert list(tmp_path.iterdir()) == []


INTERRUPTED = """
import os, signal, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Watch())
if {moment!r} == "os.replace":
    os.replace = lambda *_: signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("moment", ["remat_explorer.cli.parser", "torch", "os.replace"])
def test_ctrl_c_while_a_module_is_imported_or_a_file_written_leaves_with_130_and_without_a_traceback(
    tmp_path: Path, chain: str, moment: str
) -> None:
    path = customized(tmp_path, INTERRUPTED.format(moment=moment))
    (tmp_path / "made").mkdir()
    written = ("solve", chain, "--budget", "100%", "--strategy", "checkpoint-all", "--no-cache")
    ended = called(
        *(written if moment == "os.replace" else ("capture", "mlp", "--batch", "4")),
        *("-o", "graph.json"),
        cwd=tmp_path / "made",
        preexec_fn=hear_interrupts,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert (ended.returncode, ended.stderr) == (130, b"remat-explorer: interrupted\n")
    assert list((tmp_path / "made").iterdir()) == []


HANDLED = """
import remat_explorer.cli

def main():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 3

remat_explorer.cli.main = main
"""


def test_an_interrupt_that_was_handled_leaves_the_exit_code_whatever_code_it_came_in(tmp_path: Path) -> None:
    assert called(env=os.environ | {"PYTHONPATH": customized(tmp_path, HANDLED)}).returncode == 3


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "there is not enough memory; a limit such as that of `ulimit -v`"),
        (ImportError("libtorch_cpu.so: failed to map\nmore"), "cannot be loaded: libtorch_cpu.so: failed to map"),
    ],
)
def test_memory_or_a_package_that_is_missing_is_a_sentence_and_69(capsys, monkeypatch, error, message):
    def fail(options):
        raise error

    monkeypatch.setattr("remat_explorer.cli.parser.models", fail)
    code, out, err = run(capsys, "models")
    assert (code, out, len(err.splitlines())) == (69, "", 1)
    assert message in err


def test_a_limit_of_memory_below_what_torch_needs_ends_without_a_traceback():
    limited = f"ulimit -v 300000; exec {sys.executable} -m remat_explorer.cli models"
    ended = subprocess.run(["/bin/sh", "-c", limited], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 69
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("remat-explorer: ")
