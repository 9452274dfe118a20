"""`remat-explorer strategies`: Table 1 of the paper, for people and as JSON."""

from __future__ import annotations

import json

from remat_explorer.solvers import STRATEGIES
from tests.project.shell import run


def test_the_table_has_a_line_and_a_sentence_for_each_strategy(capsys):
    code, out, _ = run(capsys, "strategies")
    assert code == 0
    head, *lines = out.splitlines()
    assert head.split("  ")[0] == "strategy"
    assert all(column in head for column in ("general graphs", "cost aware", "memory aware", "knob", "options"))
    for name, method in STRATEGIES.items():
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
        (sentence,) = (line for line in lines if line.startswith(f"{name}: "))
        assert method.summary in sentence
        assert method.source in sentence


def test_rows_say_what_table_1_says(capsys):
    _, out, _ = run(capsys, "strategies")
    cells = {line.split()[0]: line.split()[1:] for line in out.split("\n\n")[0].splitlines()[1:]}
    assert cells["checkpoint-all"][:3] == ["yes", "no", "no"]
    assert cells["checkmate-ilp"] == ["yes", "yes", "yes", "–", "splits"]
    assert cells["pytorch-budget"] == ["yes", "yes", "partly", "activation_memory_budget", "knapsack"]


def test_json_has_the_same_as_data(capsys):
    code, out, _ = run(capsys, "strategies", "--json")
    listed = json.loads(out)["strategies"]
    assert code == 0
    assert list(listed) == list(STRATEGIES)
    sequential = listed["checkpoint-sequential"]
    assert (sequential["general_graphs"], sequential["knob"], sequential["options"]) == ("partly", "segments", [])
    assert listed["checkmate-ilp"]["options"] == ["splits"]
