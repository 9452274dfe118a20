"""A process that is killed while it works leaves every file whole, and the next one goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import remat_explorer as rx
from tests.thorough import thorough_but

WORK = """
    import itertools, torch
    import remat_explorer as rx
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(6)))
    x = torch.randn(32, 16)
    print("ready", flush=True)
    for _ in itertools.count():
        graph = rx.profile(rx.capture(model, (x,)), model, (x,), device="cpu", repeats=1, refresh=True)
        graph.save("graph.json")
        solution = rx.solve(graph, "100%", strategy="checkpoint-all")
        solution.save("schedule.json")
        rx.measure(solution, model, (x,), device="cpu", repeats=1).save_trace("trace.json")
        rx.rematerialize(model, (x,), solution=solution).rematerialization.save_source("step.py")
"""


@pytest.mark.parametrize("delay", thorough_but([0.4, 0.7, 1.1], 0.4))
def test_files_are_whole_whenever_the_process_is_killed(tmp_path, delay):
    cache = tmp_path / "cache"
    cache.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORK)],
        cwd=tmp_path,
        env=os.environ | {"REMAT_EXPLORER_CACHE": str(cache)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + 60
    while not (tmp_path / "step.py").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(delay)
    process.kill()
    process.wait()
    process.stdout.close()
    whole = {path.name for path in tmp_path.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert whole == {"graph.json", "schedule.json", "trace.json", "step.py"}
    graph = rx.Graph.load(str(tmp_path / "graph.json"))
    schedule = rx.Solution.load_schedule(tmp_path / "schedule.json", graph).schedule
    assert schedule is not None
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    compile((tmp_path / "step.py").read_text(), "step.py", "exec")
    profiles = [path for path in cache.rglob("*.json") if not path.name.startswith(".")]
    assert profiles
    for path in profiles:
        assert json.loads(path.read_text())["format"] == "remat-explorer/profile"


def test_a_solution_file_of_a_killed_process_trains_the_model(tmp_path):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 16), nn.Tanh()), torch.randn(4, 16)
    path: Path = rx.solve(rx.capture(model, (x,)), "100%").save(tmp_path / "schedule.json")
    (tmp_path / f".{path.name}.abcd").write_text('{"format": "remat-expl')  # what a killed process may leave behind
    rx.rematerialize(model, (x,), solution=path)(x).sum().backward()
