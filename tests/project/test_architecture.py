"""The roads of docs/architecture.md: every file and function is met, in the order that the page gives."""

import json
import re
import subprocess
import sys

import pytest

from tests.project.pages import ROOT, page
from tests.thorough import thorough_but

CALLS = {
    "`rx.capture`": """
import torch
run = lambda: rx.capture(torch.nn.Linear(4, 1), (torch.ones(2, 4),), loss=torch.mean)
""",
    "`rx.solve`": "run = lambda: rx.solve(rx.linear(12), '60%')",
    "`rx.rematerialize`": """
import torch
def run():
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    model = rx.rematerialize(layers, (torch.ones(8, 4),), budget='100%')
    model(torch.ones(8, 4)).sum().backward()
""",
    "Find the best, in the explorer": """
explorer = rx.Explorer(rx.linear(12))
explorer.wait()
def run():
    explorer.solve()
    explorer.wait()
""",
    "`remat-explorer solve`": """
import os
from remat_explorer.cli import main
path = os.environ["REMAT_EXPLORER_CACHE"] + "/chain.json"
rx.linear(12).save(path)
run = lambda: main(["solve", path, "--budget", "60%"])
""",
}
TRACE = """
import inspect, json, sys, threading
met = {}
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class
        met.setdefault((frame.f_code.co_filename, frame.f_code.co_qualname), len(met))
threading.setprofile(note)
sys.setprofile(note)
run()
sys.setprofile(None)
json.dump(list(met), open(sys.argv[1], "w"))
"""


def roads() -> dict[str, list[tuple[str, str]]]:
    """By its heading, the files and functions of each road."""
    sections = re.split(r"^## ", page("docs/architecture.md"), flags=re.MULTILINE)[1:]
    return {
        re.split(r":|\n", section)[0]: re.findall(r"^\d+\. `([\w/.]+)`, `([\w.]+)`", section, re.MULTILINE)
        for section in sections
    }


@pytest.mark.parametrize("road", thorough_but(CALLS, "`rx.solve`", "`remat-explorer solve`"))
def test_a_road_is_met_in_its_order(road, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    code = "import remat_explorer as rx\nrx.solve(rx.linear(6), '60%')\n" + CALLS[road] + TRACE
    met_file = tmp_path / "met.json"
    subprocess.run([sys.executable, "-c", code, str(met_file)], check=True, cwd=ROOT, timeout=300)
    met = [tuple(call) for call in json.loads(met_file.read_text())]
    package = ROOT / "remat_explorer"
    order = []
    for file, function in roads()[road]:
        first = [
            k
            for k, (path, name) in enumerate(met)
            if path == str(package / file) and f"{name}.".startswith(f"{function}.")
        ]
        assert first, f"{road} does not meet `{function}` of `{file}`"
        order.append((first[0], file))
    assert [file for _, file in order] == [file for _, file in sorted(order)]


def test_no_road_is_longer_than_can_be_read() -> None:
    limits = dict(zip(CALLS, (9, 16, 22, 10, 25), strict=True))
    assert {road: len(files) <= limits[road] for road, files in roads().items()} == dict.fromkeys(limits, True)
