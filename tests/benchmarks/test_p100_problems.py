"""The problems that the authors of MONeT solved, as the benchmark has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import monet_p100
import pytest
from p100_problems import GIB, UNIT, Problem, by_their_rule, graph_of, problems

import remat_explorer as rx
from remat_explorer.errors import RematError

FOLDER = Path(__file__).parents[1] / "data" / "monet_p100_problems"
KNOWN = {problem.name: problem for problem in problems(FOLDER)}


def test_each_problem_has_the_best_that_any_published_run_found():
    assert KNOWN["vgg16_icmn@6"].cost == pytest.approx(1.49129)
    assert KNOWN["vgg16_icmn@10"].cost == pytest.approx(1.324)  # a second run was interrupted at 3.57383 s
    assert KNOWN["vgg16_icmn@10"].wall == 16.94
    assert KNOWN["vgg16_icmn@5"].cost is None
    assert KNOWN["unet_checkmate@8"].wall is None  # a solution without a log
    assert KNOWN["unet_icmn@5"].bound == pytest.approx(1.28123)
    assert {problem.strategy for problem in KNOWN.values() if problem.mode == "checkmate"} == {"optimal"}
    assert {problem.strategy for problem in KNOWN.values() if problem.mode == "icmn"} == {"monet"}


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(RematError, match=r"there is no .*results\.json"):
        problems(tmp_path)


def test_a_problem_whose_graph_the_folder_lacks_has_none():
    assert graph_of(FOLDER, KNOWN["unet_checkmate@8"]) is None


def test_by_their_rule_what_runs_in_place_in_the_forward_pass_does_so_only_where_its_input_dies():
    graph = rx.Graph.load(str(FOLDER / "graph_vgg16_icmn.json"))
    ruled = by_their_rule(graph)
    assert not graph.runs_in_place
    for before, after in zip(graph.operations, ruled.operations, strict=True):
        ways = {way.name: way for way in after.implementations}
        assert ways.keys() == {way.name for way in before.implementations}
        for way in before.implementations:
            changed = ways[way.name]
            assert replace(way, kinds=(), in_place=False) == replace(changed, kinds=(), in_place=False)
            relu_in_place = before.phase == "forward" and way.name.startswith("in place")
            assert changed.in_place == relu_in_place
    assert sum(way.in_place for node in ruled.operations for way in node.implementations) == 30


def test_a_graph_without_such_implementations_is_left_as_it_is():
    graph = rx.Graph.load(str(FOLDER / "graph_vgg16_checkmate.json"))
    assert by_their_rule(graph) == graph


@pytest.mark.parametrize(
    ("cost", "worse"), [(1.0, False), (1.0 + UNIT / 4, False), (1.0 + 2 * UNIT, True), (0.9, False), (None, True)]
)
def test_worse_is_what_costs_at_least_a_unit_more(cost, worse):
    assert Problem("vgg16", "icmn", 6.0, 1.0, 1.0, 1.0, "optimal").is_worse(cost) is worse
    assert not Problem("vgg16", "icmn", 6.0, None, None, 1.0, "infeasible").is_worse(cost)


def test_a_row_says_ours_beside_theirs():
    entry = monet_p100.solved(FOLDER, KNOWN["vgg16_checkmate@10"], 60.0, subset=False)
    assert entry is not None
    assert entry["ours"]["status"] == "optimal"
    row = dict(zip(monet_p100.COLUMNS, monet_p100.row("vgg16_checkmate@10", entry), strict=True))
    assert row["problem"] == "vgg16_checkmate@10"
    assert row["ours, ms"] == row["theirs, ms"] == "2506.00"
    assert row["ours/theirs"] in ("+0.00 %", "-0.00 %")
    assert "as much in 1, more in 0" in monet_p100.summary({"vgg16_checkmate@10": entry})


def test_a_row_that_costs_more_is_marked():
    ours = {"cost": 1.1, "bound": 1.0, "gap": 0.1 / 1.1, "wall": 60.0, "status": "feasible"}
    theirs = {"cost": 1.0, "bound": 1.0, "wall": 10.0, "status": "optimal"}
    entry = {"ours": ours, "theirs": theirs, "worse": True, "loses_to_subset": True}
    assert monet_p100.row("unet_i@5", entry)[0] == "unet_i@5!?"
    assert "more in 1; a choice costs more than the defaults in 1" in monet_p100.summary({"unet_i@5": entry})


def test_monet_finds_within_the_authors_rule_what_gurobi_found_on_vgg16():
    problem = KNOWN["vgg16_icmn@6"]
    graph = graph_of(FOLDER, problem)
    assert graph is not None
    assert problem.cost is not None
    enough = 1.002 * problem.cost
    found: list[float] = []
    solution = rx.solve(
        graph,
        int(problem.gib * GIB),
        "monet",
        time_limit=1800,
        on_progress=lambda report: found.append(report.cost if report.cost is not None else 2 * enough),
        cancelled=lambda: bool(found) and min(found) <= enough,
    )
    assert solution.cost is not None
    assert solution.lower_bound is not None
    assert solution.lower_bound <= problem.cost + UNIT  # what they proved
    assert solution.cost <= enough
