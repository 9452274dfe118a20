"""`python -m reproduction`, as a shell sees it, and what `remat-explorer papers` says."""

import json
import subprocess
import sys

import pytest

from reproduction import ITEMS
from reproduction.__main__ import main
from tests.project.shell import run

# An item that is interrupted while it works, after its first row: by the command itself, as soon as it watches.
INTERRUPTED = """
import dataclasses, signal, sys, threading
from reproduction import ITEMS, Outcome
import reproduction.__main__ as command

signal.signal(signal.SIGINT, signal.default_int_handler)
working, heard, say = threading.Event(), threading.Event(), command.say

def interrupting(*arguments):
    say(*arguments)
    if working.is_set() and not heard.is_set():
        heard.set()
        signal.raise_signal(signal.SIGINT)

def compute(settings, progress, cancelled):
    progress("working")
    working.set()
    while not cancelled():
        heard.wait(0.01)
    from plotly import graph_objects
    return Outcome("One row.", ROWS, graph_objects.Figure, complete=False)

command.say = interrupting
key = "checkmate-appendix-a"
ITEMS[key] = dataclasses.replace(ITEMS[key], compute=compute)
sys.exit(command.main([key, *sys.argv[1:]]))
"""


def test_the_items_are_listed_with_what_is_published(capsys):
    code, out, _ = run(capsys, main=main)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == list(ITEMS)
    known = {item["key"]: item for item in json.loads(run(capsys, "--json", main=main)[1])["items"]}
    assert known.keys() == ITEMS.keys()
    assert "21.56" in known["checkmate-appendix-a"]["published"]


def test_one_item_is_regenerated_and_written(capsys, tmp_path):
    page, data = tmp_path / "gap.html", tmp_path / "gap.json"
    code, out, _ = run(capsys, "checkmate-appendix-a", "-o", str(page), main=main)
    assert code == 0
    assert "1.18 and 21.56" in out
    assert "published: 1.18 with stages, 21.56 without" in out
    assert f"written to {page}" in out
    assert page.stat().st_size > 10**6  # with plotly inside
    code, out, _ = run(capsys, "checkmate-appendix-a", "-o", str(data), "--json", main=main)
    answer = json.loads(out)
    assert (code, answer["complete"], answer["interrupted"]) == (0, True, False)
    assert answer["rows"] == json.loads(data.read_text())["rows"]


@pytest.mark.parametrize(("rows", "code"), [("({'a': 1},)", 3), ("()", 130)])
def test_an_interrupt_keeps_what_is_there(rows, code, tmp_path):
    target = tmp_path / "part.json"
    program = [sys.executable, "-c", INTERRUPTED.replace("ROWS", rows), "-o", str(target)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, done.stderr
    assert "interrupted: this is what was found by then" in done.stdout
    assert target.exists() == (code == 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["checkmate-figure-9"], "unknown item of the papers 'checkmate-figure-9'; did you mean"),
        (["checkmate-appendix-a", "-o", "gap.png"], "'gap.png' names no format that is written"),
        (["checkmate-appendix-a", "-o", "nowhere/gap.json"], "cannot write 'nowhere/gap.json': No such file"),
        (["--full"], "--full and -o apply to one item"),
    ],
)
def test_bad_input_leaves_with_64_and_quotes_it(capsys, arguments, message):
    code, out, err = run(capsys, *arguments, main=main)
    assert (code, out) == (64, "")
    assert message in err


@pytest.mark.parametrize("arguments", [[], ["checkmate-figure-6", "--full"]])
def test_the_command_that_there_was_says_what_to_type_now(capsys, arguments):
    code, out, err = run(capsys, "papers", *arguments)
    assert (code, out) == (64, "")
    assert "type python -m reproduction, which lists the papers' items, or python -m reproduction ITEM" in err
