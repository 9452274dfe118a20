"""`remat-explorer solve` as a shell runs it: watched on a terminal, interrupted, answered from the cache."""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.cli import main
from remat_explorer.cli.output import tell_what_took_longer
from remat_explorer.graph import Graph, Value
from remat_explorer.instances import linear
from remat_explorer.solution_summary import Status
from remat_explorer.solvers.solution import Solution
from tests.project.shell import customized, hear_interrupts, run

pytestmark = pytest.mark.usefixtures("kept_workers")

# the worker's strategy: a schedule with a bound that does not prove it, or nothing, and then no end
ENDLESS = """
import dataclasses
import time
from remat_explorer.solvers.solver_interface import checkpoint_all
from remat_explorer.solvers.registry import STRATEGIES

def strategy(graph, budget, limits):
    if {finds}:
        limits.tell("planning", checkpoint_all(graph), 0.9 * graph.total_cost)
    limits.tell("thinking")
    time.sleep(600)

STRATEGIES["optimal"] = dataclasses.replace(STRATEGIES["optimal"], run=strategy)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def endless(tmp_path: Path, chain: str):
    """Starter of a command that solves the chain without end, on a terminal of its own; and what that shows."""
    pty = pytest.importorskip("pty")
    started: list[Any] = []

    def start(*arguments: str, finds: bool = True) -> tuple[subprocess.Popen[str], int]:
        terminal, end = pty.openpty()
        command = [sys.executable, "-m", "remat_explorer.cli", "solve", chain, "--budget", "10", *arguments]
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": end, "text": True}
        environment = {**os.environ, "PYTHONPATH": customized(tmp_path, ENDLESS.format(finds=finds))}
        process = subprocess.Popen(command, env=environment, preexec_fn=hear_interrupts, **streams)
        os.close(end)
        started.extend((process, terminal))
        return process, terminal

    yield start
    process, terminal = started
    process.kill()
    process.communicate()
    os.close(terminal)


def read_until(terminal: int, pattern: str) -> str:
    shown, end = "", time.monotonic() + 240
    while not re.search(pattern, shown) and time.monotonic() < end:
        shown += os.read(terminal, 4096).decode(errors="replace")
    assert re.search(pattern, shown)
    return shown


def test_a_terminal_shows_how_far_it_is_and_ctrl_c_keeps_the_best_schedule_and_leaves_with_3(endless, chain, tmp_path):
    target = tmp_path / "schedule.json"
    process, terminal = endless("-o", str(target), "--time-limit", "100")
    shown = read_until(terminal, r"thinking[^\x1b]* gap ")
    line = shown[shown.rindex("\x1b[2K") :]
    assert "of 100.0 s · thinking · best +0.0 % · bound" in line
    assert "\n" not in shown
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 3
    assert "strategy optimal: feasible, overhead +0.0 %" in out
    assert "interrupted: this is the best schedule found until then" in out
    solution = Solution.load(target, Graph.load(chain))
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.FEASIBLE, 17, 16)


def test_ctrl_c_before_a_schedule_leaves_with_130_and_says_so(endless, tmp_path):
    target = tmp_path / "schedule.json"
    process, terminal = endless("-o", str(target), finds=False)
    read_until(terminal, "thinking")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 130
    assert out == ""
    assert "interrupted before a schedule was found" in read_until(terminal, "found")
    assert not target.exists()


def test_a_time_limit_that_the_solver_ignores_leaves_with_3_and_says_so(endless, chain, tmp_path):
    target = tmp_path / "schedule.json"
    process, terminal = endless("-o", str(target), "--time-limit", "0.5")
    shown = read_until(terminal, "is kept")
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 3
    assert "did not stop at its time limit of 500 ms" in shown
    assert "strategy optimal: feasible" in out
    assert Solution.load(target, Graph.load(chain)).status == Status.FEASIBLE


def test_the_second_time_the_answer_comes_from_the_cache_and_says_so_unless_that_is_declined(capsys, chain, folder):
    assert main(["solve", chain, "--budget", "10", "--no-cache"]) == 0
    assert not folder.exists()
    for cached in (False, True):
        assert main(["solve", chain, "--budget", "10"]) == 0
        assert ("found in the cache" in capsys.readouterr().out) == cached
    assert main(["solve", chain, "--budget", "10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["from_cache"] is True


def test_a_search_without_a_time_limit_is_kept_as_json_that_everybody_reads(capsys, chain):
    assert run(capsys, "solve", chain, "--budget", "4", "--time-limit", "inf")[0] == 0
    code, out, _ = run(capsys, "cache", "list", "--json")
    assert code == 0
    assert json.loads(out, parse_constant=pytest.fail)["solutions"][0]["time_limit"] is None
    assert json.loads(run(capsys, "solve", chain, "--budget", "4", "--json")[1])["from_cache"]


def test_a_cache_that_cannot_be_written_is_said_and_does_no_harm(capsys, chain, folder):
    folder.write_text("a file")
    assert main(["solve", chain, "--budget", "10"]) == 0
    shown = capsys.readouterr()
    assert "optimal: proven optimal" in shown.out
    assert "could not be kept in the cache folder" in shown.err


def test_an_output_that_cannot_be_written_does_not_lose_the_answer(capsys, monkeypatch, chain, tmp_path):
    def full_when_the_schedule_comes(path, content):
        if path.parent == tmp_path:
            raise OSError(28, "No space left on device")
        return write_bytes(path, content)

    write_bytes = Path.write_bytes
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full_when_the_schedule_comes)
        assert main(["solve", chain, "--budget", "10", "-o", str(tmp_path / "schedule.json")]) == 64
    assert list(tmp_path.glob("*schedule.json*")) == []
    shown = capsys.readouterr()
    assert "strategy optimal: proven optimal, overhead +0.0 %" in shown.err
    assert "could not be written to" in shown.err
    assert main(["solve", chain, "--budget", "10", "-o", str(tmp_path / "schedule.json")]) == 0
    assert "found in the cache" in capsys.readouterr().out


def test_threads_reach_the_strategy(capsys, chain, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import dataclasses\n"
        "from remat_explorer.errors import SolverError\n"
        "from remat_explorer.solvers.registry import STRATEGIES\n"
        "def strategy(graph, budget, limits):\n"
        "    raise SolverError(f'{limits.threads} threads')\n"
        "STRATEGIES['optimal'] = dataclasses.replace(STRATEGIES['optimal'], run=strategy)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert main(["solve", chain, "--budget", "4", "--threads", "7"]) == 64
    assert "remat-explorer: 7 threads" in capsys.readouterr().err


def test_options_of_the_strategy_reach_it(capsys, chain):
    whole = ["solve", chain, "--budget", "8", "--strategy", "checkpoint-sequential", "--json"]
    for segments, peak in (("3", 8), ("4", 7)):
        assert main([*whole, "--option", f"segments={segments}"]) == 3
        answer = json.loads(capsys.readouterr().out)
        assert (answer["peak"], answer["from_cache"]) == (peak, False)  # another option is another question
    assert main([*whole, "--option", "segments=4"]) == 3
    assert json.loads(capsys.readouterr().out)["from_cache"] is True


@pytest.fixture
def wide_chain(tmp_path: Path) -> str:
    """The chain with values of 11 MiB, each of which takes 12 MiB of PyTorch's allocator."""
    unit, path = linear(8), str(tmp_path / "wide.json")
    Graph(unit.name, tuple(Value(value.name, 11 << 20) for value in unit.values), unit.operations).save(path)
    return path


def test_a_budget_may_mean_reserved_bytes(capsys, wide_chain):
    arguments = ["solve", wide_chain, "--budget", "55 MiB", "--json"]
    found = []
    for means in ("requested", "reserved"):
        main([*arguments, "--budget-means", means])
        found.append(json.loads(capsys.readouterr().out))
    assert [answer["cost"] for answer in found] == [22.0, 26.0]
    assert [answer["predicted_reserved_on_gpu"] >> 20 for answer in found] == [60, 48]
    assert [answer["predicted_pool_on_gpu"]["size"] >> 20 for answer in found] == [55, 44]
    assert [answer["status"] for answer in found] == ["optimal", "feasible"]
    main(["solve", wide_chain, "--budget", "55 MiB", "--budget-means", "reserved"])
    shown = capsys.readouterr().out
    assert "PyTorch's allocator on a GPU: 48.0 MiB reserved" in shown
    assert "a pool of one block: 44.0 MiB, proven least (predicted)" in shown
    assert main(["solve", wide_chain, "--budget", "35 MiB", "--budget-means", "reserved"]) == 3
    shown = capsys.readouterr().out
    assert "the least reserved bytes of a schedule were 36.0 MiB" in shown
    assert "found no schedule for which PyTorch's allocator reserves at most 35.0 MiB" in shown


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (["--budget", "2"], "--budget smallest"),
        (["--budget=20%"], "--budget '20% of the way'"),
        (["--budget", "2", "--strat", "checkpoint-sequential", "--option=segments=4"], "--strategy optimal"),
        (["--budget", "5", "--strategy", "checkpoint-all"], "--budget 5 --strategy optimal"),
    ],
)
def test_the_command_that_is_named_where_a_budget_is_infeasible_works_as_it_stands(given, typed, chain, capsys):
    code, out, _ = run(capsys, "solve", chain, *given)
    assert code in (2, 3)
    advice = out.splitlines()[-1].removeprefix("to go on, type: ")
    assert advice.endswith(typed)
    program, *words = shlex.split(advice)
    assert program == "remat-explorer"
    assert run(capsys, *words)[0] == 0


def test_shares_of_the_way_lie_between_the_smallest_budget_and_keeping_everything(capsys, chain):
    budgets = [run_json(capsys, chain, budget)["budget"] for budget in ("0% of the way", "40%  of the way", "100%")]
    assert budgets == [3, 5, 10]
    assert run_json(capsys, chain, "smallest")["peak"] == run_json(capsys, chain, "0% of the way")["peak"] == 3


def run_json(capsys: pytest.CaptureFixture[str], chain: str, budget: str) -> dict[str, Any]:
    return json.loads(run(capsys, "solve", chain, "--budget", budget, "--json")[1])


def test_a_budget_that_one_operation_forbids_is_refused_before_any_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a search began")

    monkeypatch.setattr(sys.modules["remat_explorer.solvers.solve"], "load_search", never)
    assert rx.solve(linear(8), 2).status is Status.INFEASIBLE


@pytest.mark.parametrize(
    ("given", "told"),
    [({"time_limit": 1}, True), ({"time_limit": 60}, False), ({}, False), ({"time_limit": 1, "budgets": "5"}, False)],
)
def test_who_waits_longer_than_the_limit_of_the_search_is_told_for_what(given, told, capsys):
    options = argparse.Namespace(**given, beside_search={"the capture": 8.0, "the profile": 0.1})
    tell_what_took_longer(options, 9.5)
    said = "remat-explorer: 9.5 s in all: --time-limit 1 is of the search, and not of the capture (8.0 s)\n"
    assert capsys.readouterr().err == (said if told else "")


def test_costs_have_their_unit_unless_they_are_whole_units(capsys, chain):
    out = run(capsys, "solve", chain, "--budget", "100%")[1]
    assert re.search(r"^cost \d+, lower bound \d+, peak 10 B$", out, re.M)
    out = run(capsys, "solve", "mlp", "--budget", "100%")[1]
    assert re.search(r"^cost [\d.e-]+ s, lower bound [\d.e-]+ s, peak [\d.]+ MiB \(\d+ bytes\)$", out, re.M)
