"""`remat-explorer ablation`, and `--implementations` of the commands that capture a model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from remat_explorer.graph import Graph
from remat_explorer.solvers import Ablation, checkpoint_all_peak
from remat_explorer.solvers.solution import Solution
from tests.project.shell import run
from tests.solvers.monet.choice_graphs import random_graph
from tests.solvers.monet.kinds_by_name import RANDOM, with_kinds

NET = ("residual_net", "--batch", "2", "--image", "16")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def chosen(tmp_path) -> Path:
    """A graph file with implementations of three kinds."""
    with_kinds(random_graph(8), RANDOM).save(tmp_path / "chosen.json")
    return tmp_path / "chosen.json"


def test_the_table_file_and_json_say_the_same(capsys, chosen, tmp_path):
    path, graph = tmp_path / "ablation.json", Graph.load(chosen)
    arguments = ("ablation", str(chosen), "--budgets", "75%,100%", "--time-limit", "60", "-o", str(path))
    code, out, _ = run(capsys, *arguments, "--figure", str(tmp_path / "curves.html"))
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:6]] == ["kinds", "none", *graph.kinds, "all"]
    found = Ablation.load(path, graph)
    assert str(found) in out
    assert "masks" in (tmp_path / "curves.html").read_text()
    code, out, _ = run(capsys, *arguments, "--json")
    answer = json.loads(out)
    assert [entry["points"][-1]["cost"] for entry in answer["sets"]] == [
        found.curve(kinds)[-1].cost for kinds in found.sets
    ]


def test_chosen_kinds_and_unknown_ones(capsys, chosen):
    arguments = ("ablation", str(chosen), "--budgets", "100%", "--time-limit", "60")
    code, out, _ = run(capsys, *arguments, "--kinds", "masks")
    assert code == 0
    assert re.findall(r"^\w+", out, re.MULTILINE)[:3] == ["kinds", "none", "masks"]
    code, _, err = run(capsys, *arguments, "--kinds", "mask")
    assert code == 64
    assert "did you mean 'masks'" in err
    code, _, err = run(capsys, *arguments, "--kinds", "lean")
    assert code == 64
    assert "capture the model" in err


def test_a_model_is_captured_with_the_kinds_that_are_asked_for(capsys, tmp_path):
    path = tmp_path / "graph.json"
    assert run(capsys, "capture", *NET, "--implementations", "masks,pooling", "-o", str(path))[0] == 0
    graph = Graph.load(path)
    assert graph.options is not None
    assert graph.options.implementations == ("masks", "pooling")
    code, _, err = run(capsys, "capture", *NET, "--implementations", "mask", "-o", str(path))
    assert code == 64
    assert "unknown kind of implementations 'mask'" in err


def test_with_implementations_to_choose_the_strategy_is_monet(capsys, tmp_path):
    arguments = (*NET, "--implementations", "exact", "--budget", "90%", "--time-limit", "3", "--json")
    code, out, _ = run(capsys, "solve", *arguments)
    assert code in (0, 3)
    assert json.loads(out)["strategy"] == "monet"
    code, _, err = run(capsys, "solve", *arguments, "--strategy", "optimal")
    assert code == 64
    assert "use 'monet'" in err


def test_a_graph_file_has_its_implementations_and_lets_strategies_choose(capsys, chosen, tmp_path):
    budget = str(checkpoint_all_peak(Graph.load(chosen)))
    code, _, err = run(capsys, "solve", str(chosen), "--budget", budget, "--implementations", "masks")
    assert code == 64
    assert "--option implementations=" in err
    path = tmp_path / "solution.json"
    code, _, _ = run(
        capsys, "solve", str(chosen), "--budget", budget, "--option", "implementations=masks,fast", "-o", str(path)
    )
    assert code == 0
    graph = Graph.load(chosen)
    schedule = Solution.load(path, graph).schedule
    assert schedule is not None
    used = {graph.operations[k].implementations[code - 1].kind for _, k, code in schedule.sequence}
    assert used <= {"", "masks", "algorithms"}


def test_a_sweep_and_the_smallest_budget_of_a_graph_with_choices(capsys, chosen):
    code, out, _ = run(capsys, "sweep", str(chosen), "--budgets", "3", "--time-limit", "20", "--workers", "1", "--json")
    answer = json.loads(out)
    assert code == 0
    assert {point["strategy"] for point in answer["points"]} == {"monet"}
    code, out, _ = run(capsys, "minimum-budget", str(chosen), "--json")
    smallest = json.loads(out)
    assert code == 0
    assert answer["points"][0]["budget"] == smallest["known_feasible"] == smallest["lower_bound"]
    code, out, _ = run(capsys, "solve", str(chosen), "--budget", str(smallest["known_feasible"] - 1))
    assert code == 2
    assert "The smallest budget worth trying" in out


def test_a_kind_of_which_a_model_has_nothing_has_no_row_and_is_named(capsys):
    code, out, err = run(capsys, "ablation", *NET, "--budgets", "100%", "--kinds", "masks,pooling")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["none", "masks", "2"]  # sets of kinds
    assert "no operation of 'residual_net' has an implementation of the kind 'pooling'" in err


def test_other_commands_name_such_a_kind_too_and_none_that_there_is(capsys, tmp_path):
    path = str(tmp_path / "graph.json")
    assert "of the kind 'pooling'" in run(capsys, "capture", *NET, "--implementations", "masks,pooling", "-o", path)[2]
    assert run(capsys, "show", *NET, "--implementations", "masks")[2] == ""
    assert run(capsys, "show", *NET, "--implementations", "exact")[2] == ""
