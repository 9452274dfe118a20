"""`remat-explorer sweep`: table, JSON, file, exit codes, and an interrupt."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from remat_explorer.cli import main
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import Frontier, checkpoint_all_peak
from tests.project.shell import hear_interrupts


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_second_time_points_come_from_the_cache_unless_that_is_declined(capsys, chain, folder):
    arguments = ["sweep", chain, "--budgets", "4,10", "--time-limit", "60", "--workers", "1"]
    assert main([*arguments, "--no-cache"]) == 0
    assert not list(folder.glob("solution-*"))
    for taken in (False, True):
        assert main(arguments) == 0
        assert ("2 of 2 points found in the cache" in capsys.readouterr().out) == taken
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["from_cache"] == 2


def test_the_table_has_a_line_for_each_point(capsys, chain):
    code = main(["sweep", chain, "--budgets", "4,60%,10", "--time-limit", "60", "--workers", "1"])
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert code == 0
    assert head.split()[:3] == ["strategy", "budget", "peak"]
    assert [row.split()[-1] for row in rows] == ["optimal"] * 3
    assert [row.split()[5] for row in rows] == ["26", "21", "17"]
    assert last.startswith("3 non-dominated")


def test_json_and_file_have_the_same_points(capsys, chain, tmp_path):
    path = tmp_path / "sweep.json"
    options = ["--strategies", "optimal,checkpoint-all", "--time-limit", "60", "--json", "-o", str(path)]
    code = main(["sweep", chain, "--budgets", "4,10", *options])
    shown = json.loads(capsys.readouterr().out)
    loaded = Frontier.load(path, linear(8))
    assert code == 0
    assert [(p["strategy"], p["budget"], p["cost"]) for p in shown["points"]] == [
        ("optimal", 4, 26),
        ("optimal", 10, 17),
        ("checkpoint-all", 4, None),
        ("checkpoint-all", 10, 17),
    ]
    assert [s.cost for s in loaded.solutions] == [p["cost"] for p in shown["points"]]
    assert "no schedule within 4 B" in shown["points"][2]["message"]


def test_a_number_of_budgets_is_spaced_and_gaps_leave_with_3(capsys, data):
    unet = str(data / "captured" / "unet.json")
    code = main(["sweep", unet, "--budgets", "4", "--time-limit", "0.2", "--json"])
    points = json.loads(capsys.readouterr().out)["points"]
    assert code == 3
    assert len(points) == 4
    assert points[-1]["budget"] == checkpoint_all_peak(Graph.load(unet))
    assert [p["cost"] for p in points] == sorted((p["cost"] for p in points), reverse=True)


def test_budgets_that_are_all_infeasible_leave_with_2(capsys, chain):
    assert main(["sweep", chain, "--budgets", "1,2"]) == 2
    assert "'v9' alone needs 3 B" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budgets", "0"], "0 is not a number of budgets"),
        (["--budgets", ","], "no budgets to sweep over"),
        (["--budgets", "4,much"], "'much'"),
        (["--strategies", "optimall"], "did you mean 'optimal'"),
        (["--solver", "hihgs"], "did you mean 'highs'"),
        (["--workers", "0"], "'0' is not a whole number"),
        (["--batch", "2"], "a graph file has its sizes and costs already"),
        (["--budgets", "10", "-o", "no/such/folder/x.json"], "No such file or directory"),
    ],
)
def test_bad_input_leaves_with_64_and_quotes_it(capsys, chain, arguments, message):
    try:
        code = main(["sweep", chain, *arguments])
    except SystemExit as stop:
        code = stop.code
    assert code == 64
    assert message in capsys.readouterr().err


def test_an_interrupt_prints_and_writes_what_was_found(data, tmp_path):
    mobilenet, path = data / "captured" / "mobilenet_v1.json", tmp_path / "sweep.json"
    command = [sys.executable, "-m", "remat_explorer.cli", "sweep", str(mobilenet), "--budgets", "30%,100%"]
    process = subprocess.Popen(
        [*command, "--strategies", "optimal,checkmate-ilp", "--time-limit", "600", "-o", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        preexec_fn=hear_interrupts,
    )
    end, workers = time.monotonic() + 60, []
    while time.monotonic() < end and not any(worker.cpu_times().user > 2 for worker in workers):  # at work
        time.sleep(0.05)
        workers = psutil.Process(process.pid).children()
    assert workers
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 3, shown
    assert "interrupted" in shown
    graph = Graph.load(str(mobilenet))
    last = Frontier.load(path, graph).points[-1]
    assert (last.strategy, last.budget, last.status) == ("optimal", checkpoint_all_peak(graph), "optimal")
    assert not any(worker.is_running() for worker in workers)
