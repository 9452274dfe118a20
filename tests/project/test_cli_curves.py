"""`remat-explorer sweep`, `ablation`, `max-batch` and `minimum-budget`; and kinds of implementations elsewhere."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from remat_explorer.checker import check
from remat_explorer.cli import main
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import Ablation, Frontier, checkpoint_all_peak, scale_batch
from remat_explorer.solvers.solution import Solution
from tests.project.shell import customized, hear_interrupts, run
from tests.solvers.monet.choice_graphs import random_graph, with_kinds

pytestmark = pytest.mark.usefixtures("kept_workers")

NET = ("residual_net", "--batch", "2", "--image", "16")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def chosen(tmp_path) -> Path:
    """A graph file with implementations of three kinds."""
    with_kinds(random_graph(8)).save(tmp_path / "chosen.json")
    return tmp_path / "chosen.json"


def test_the_second_time_points_come_from_the_cache_unless_that_is_declined(capsys, chain, folder):
    arguments = ["sweep", chain, "--budgets", "4,10", "--time-limit", "60", "--workers", "1"]
    assert main([*arguments, "--no-cache"]) == 0
    assert not list(folder.glob("solution-*"))
    for taken in (False, True):
        assert main(arguments) == 0
        assert ("2 of 2 points found in the cache" in capsys.readouterr().out) == taken
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["from_cache"] == 2


def test_a_sweep_of_budgets_that_cannot_exist_names_one_that_works_as_it_stands(capsys, chain):
    code, out, _ = run(capsys, "sweep", chain, "--budgets", "10%, 2,20%", "--workers", "1")
    assert code == 2
    advice = out.splitlines()[-1].removeprefix("to go on, type: ")
    assert "'10% of the way, smallest, 20% of the way'" in advice
    code, out, _ = run(capsys, *shlex.split(advice)[1:], "--json")
    assert code == 0
    assert [point["budget"] for point in json.loads(out)["points"]] == [3, 4]


def test_the_table_has_a_line_for_each_point_and_the_file_the_same_points(capsys, chain, tmp_path):
    path = tmp_path / "sweep.json"
    options = ["--strategies", "optimal,checkpoint-all", "--time-limit", "60", "--workers", "1", "-o", str(path)]
    assert main(["sweep", chain, "--budgets", "4,60%,10", *options]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["strategy", "budget", "peak"]
    assert [row.split()[5] for row in rows[:3]] == ["26", "21", "17"]
    assert any(row.startswith("3 non-dominated") for row in rows)
    assert main(["sweep", chain, "--budgets", "4,60%,10", *options, "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [(p["budget"], p["cost"]) for p in points[:3]] == [(4, 26), (6, 21), (10, 17)]
    assert [(p["strategy"], p["cost"]) for p in points[3:]] == [("checkpoint-all", cost) for cost in (None, None, 17)]
    assert "no schedule within 4 B" in points[3]["message"]
    assert [s.cost for s in Frontier.load(path, linear(8)).solutions] == [p["cost"] for p in points]


def test_a_number_of_budgets_is_spaced_and_gaps_leave_with_3(capsys, data):
    unet = str(data / "captured" / "unet.json")
    code = main(["sweep", unet, "--budgets", "4", "--strategies", "ap-sqrt-n", "--json"])  # which proves no bound
    points = json.loads(capsys.readouterr().out)["points"]
    assert code == 3
    assert len(points) == 4
    assert points[-1]["budget"] == checkpoint_all_peak(Graph.load(unet))
    assert points[-1]["cost"] is not None


def test_budgets_that_are_all_infeasible_leave_with_2(capsys, chain):
    assert main(["sweep", chain, "--budgets", "1,2"]) == 2
    assert "'v9' alone needs 3 B" in capsys.readouterr().out


# the worker's second strategy: it says that it is at work, and has no end
ENDLESS = """
import dataclasses
import pathlib
import time
from remat_explorer.solvers.registry import STRATEGIES

def strategy(graph, budget, limits):
    pathlib.Path({begun!r}).touch()
    time.sleep(600)

STRATEGIES["checkmate-ilp"] = dataclasses.replace(STRATEGIES["checkmate-ilp"], run=strategy)
"""


def test_an_interrupt_prints_and_writes_what_was_found(chain, tmp_path):
    path, begun = tmp_path / "sweep.json", tmp_path / "begun"
    command = [sys.executable, "-m", "remat_explorer.cli", "sweep", chain, "--budgets", "4,10", "--workers", "1"]
    process = subprocess.Popen(
        [*command, "--strategies", "optimal,checkmate-ilp", "--time-limit", "600", "-o", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": customized(tmp_path, ENDLESS.format(begun=str(begun)))},
        preexec_fn=hear_interrupts,
    )
    end = time.monotonic() + 240
    while time.monotonic() < end and not begun.exists():
        time.sleep(0.05)
    workers = psutil.Process(process.pid).children()
    assert workers
    process.send_signal(signal.SIGINT)
    shown, _ = process.communicate(timeout=240)
    assert process.returncode == 3, shown
    assert "interrupted" in shown
    found = [(point.strategy, point.budget, point.status) for point in Frontier.load(path, linear(8)).points]
    assert found == [("optimal", 4, "optimal"), ("optimal", 10, "optimal")]
    assert not any(worker.is_running() for worker in workers)


def test_table_file_and_json_of_an_ablation_say_the_same(capsys, chosen, tmp_path):
    path, graph = tmp_path / "ablation.json", Graph.load(chosen)
    arguments = ("ablation", str(chosen), "--budgets", "75%,100%", "--time-limit", "60", "-o", str(path))
    code, out, _ = run(capsys, *arguments, "--figure", str(tmp_path / "curves.html"))
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:6]] == ["kinds", "none", *graph.kinds, "all"]
    found = Ablation.load(path, graph)
    assert str(found) in out
    assert "masks" in (tmp_path / "curves.html").read_text()
    code, _, err = run(capsys, *arguments, "--kinds", "mask")
    assert code == 64
    assert "did you mean 'masks'" in err
    code, out, _ = run(capsys, *arguments, "--json")
    answer = json.loads(out)
    assert [entry["points"][-1]["cost"] for entry in answer["sets"]] == [
        found.curve(kinds)[-1].cost for kinds in found.sets
    ]


def test_a_model_is_captured_with_the_kinds_that_are_asked_for_and_one_that_it_has_not_is_named(capsys, tmp_path):
    path = tmp_path / "graph.json"
    code, _, err = run(capsys, "capture", *NET, "--implementations", "masks,pooling", "-o", str(path))
    assert code == 0
    assert "no operation of 'residual_net' has an implementation of the kind 'pooling'" in err
    graph = Graph.load(path)
    assert graph.options is not None
    assert graph.options.implementations == ("masks", "pooling")
    assert run(capsys, "show", *NET, "--implementations", "exact")[2] == ""
    limit = ("--time-limit", "1")
    code, out, err = run(capsys, "ablation", *NET, "--budgets", "100%", "--kinds", "masks,pooling", *limit)
    assert code in (0, 3)
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["none", "masks", "2"]  # sets of kinds
    assert "of the kind 'pooling'" in err


def test_with_implementations_to_choose_the_strategy_is_monet(capsys):
    arguments = (*NET, "--implementations", "exact", "--budget", "90%", "--time-limit", "1", "--json")
    code, out, _ = run(capsys, "solve", *arguments)
    assert code in (0, 3)
    assert json.loads(out)["strategy"] == "monet"
    code, _, err = run(capsys, "solve", *arguments, "--strategy", "optimal")
    assert code == 64
    assert "use 'monet'" in err


def test_a_graph_file_has_its_implementations_and_lets_strategies_choose(capsys, chosen, tmp_path):
    budget = str(checkpoint_all_peak(Graph.load(chosen)))
    path = tmp_path / "solution.json"
    arguments = ("--budget", budget, "--option", "implementations=masks,fast", "-o", str(path))
    assert run(capsys, "solve", str(chosen), *arguments)[0] == 0
    smallest = json.loads(run(capsys, "minimum-budget", str(chosen), "--json")[1])["known_feasible"]
    code, out, _ = run(capsys, "solve", str(chosen), "--budget", str(smallest - 1))
    assert code == 2
    assert "The smallest budget worth trying" in out
    graph = Graph.load(chosen)
    schedule = Solution.load(path, graph).schedule
    assert schedule is not None
    used = {graph.operations[k].implementations[code - 1].kind for _, k, code in schedule.sequence}
    assert used <= {"", "masks", "algorithms"}


def test_a_graph_of_figure_6_is_settled_by_the_rule(capsys, data):
    path = str(data / "graphs" / "keras_vgg_unet.json")
    code, out, _ = run(capsys, "max-batch", path, "--memory", "16 GB", "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["batch"], answer["upper_bound"], answer["optimal"], answer["measured"]) == (61, 61, True, False)
    assert answer["cost"] <= answer["cost_limit"]
    assert answer["peak"] <= answer["memory"] == 16 * 10**9


def test_a_schedule_that_is_written_loads_again_for_the_graph_at_its_batch(capsys, chain, tmp_path):
    target = tmp_path / "schedule.json"
    arguments = ("--memory", "30", "--overhead-limit", "none", "-o", str(target))
    code, out, _ = run(capsys, "max-batch", chain, *arguments)
    assert code == 0
    assert "batch 10, proven to be the largest" in out
    schedule = Solution.load(target, scale_batch(linear(8), 10)).schedule
    assert schedule is not None
    assert check(schedule.graph, schedule.R, schedule.S, 30).peak == 30
    code, out, _ = run(capsys, "max-batch", chain, "--memory", "2")
    assert code == 2
    assert "not even one example fits into 2 B: 'v9' alone needs more" in out


def test_a_second_graph_file_tells_what_grows(capsys, chain, tmp_path):
    larger = tmp_path / "larger.json"
    scale_batch(linear(8), 5).save(str(larger))
    arguments = ("--memory", "90", "--larger", str(larger), "--batches", "1", "5", "--json")
    code, out, _ = run(capsys, "max-batch", chain, *arguments)
    assert code in (0, 3)
    assert json.loads(out)["measured"] is True
    assert json.loads(out)["batch"] == 18


def test_a_model_is_captured_at_several_batches(capsys):
    code, out, _ = run(capsys, "max-batch", "mlp", "--memory", "24 MB", "--time-limit", "3", "--json")
    answer = json.loads(out)
    assert code in (0, 3)
    assert answer["measured"] is True
    assert 0 < answer["checkpoint_all_batch"] <= answer["batch"] <= (answer["upper_bound"] or answer["batch"])


def test_the_largest_image_is_a_multiple_of_the_step(capsys, tmp_path):
    target = tmp_path / "schedule.json"
    arguments = ("--vary", "image", "--batch", "1", "--step", "64", "--memory", "32 MB", "--time-limit", "3")
    code, out, _ = run(capsys, "max-batch", "residual_net", *arguments, "-o", str(target), "--json")
    answer = json.loads(out)
    assert code in (0, 3)
    assert answer["side"] % 64 == 0
    assert answer["answers"][str(answer["side"])] == "feasible"
    assert (answer["upper_bound"] or answer["side"]) >= answer["side"] > 0
    assert json.loads(target.read_text())["peak"] <= 32 * 10**6


def test_the_smallest_budget_is_proven_explained_and_its_schedule_written(capsys, chain, tmp_path):
    target = tmp_path / "least.json"
    code, out, _ = run(capsys, "minimum-budget", chain, "-o", str(target))
    assert code == 0
    assert "'v9' alone needs 3 B" in out
    assert "a schedule for it is known, and it is the smallest" in out
    assert "v7 (1 B), v8 (1 B), v9 (1 B)" in out
    assert f"written to {target}" in out
    assert json.loads(target.read_text())["peak"] == 3


def test_the_smallest_budget_as_json_names_operations_and_values(capsys, data):
    path = str(data / "captured" / "vgg16.json")
    graph = Graph.load(path)
    code, out, _ = run(capsys, "minimum-budget", path, "--json")
    answer = json.loads(out)
    assert code == (0 if answer["proven"] else 3)
    assert answer["lower_bound"] <= answer["known_feasible"] <= answer["checkpoint_all_peak"]
    sizes = {value.name: value.bytes for value in graph.values}
    assert sum(sizes[name] for name in answer["alive"]) + graph.resident_bytes <= answer["known_feasible"]
    assert {answer["operation"], answer["stage"]} <= {node.name for node in graph.operations}


def test_the_least_memory_at_a_limited_overhead_is_found_and_its_schedule_written(capsys, chain, tmp_path):
    target = tmp_path / "least.json"
    code, out, _ = run(capsys, "minimum-budget", chain, "--overhead", "53%", "-o", str(target))
    assert code == 0
    assert "40.0 % of eager's 10 B at overhead +53.0 %, at least 40.0 % proven" in out
    assert json.loads(target.read_text())["peak"] == 4
    code, out, _ = run(capsys, "minimum-budget", chain, "--overhead", "0.53", "--json")
    answer = json.loads(out)
    assert (answer["peak"], answer["lower_bound"], answer["cost"], answer["strategy"]) == (4, 4, 26.0, "optimal")
