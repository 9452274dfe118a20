"""The result of a sweep: its points, its best ones, its file, its text."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from remat_explorer.errors import QuantityError, SolutionError
from remat_explorer.instances import linear
from remat_explorer.solvers import Frontier, checkpoint_all, solve
from remat_explorer.solvers.solution import Solution, Status, pack_runs, unpack_runs


@pytest.fixture
def frontier():
    """Three proven points, one without a schedule, and checkpoint-all, of the chain of 8 layers."""
    graph = linear(8)
    points = [solve(graph, budget) for budget in (2, 4, 6, 10)] + [solve(graph, 10, "checkpoint-all")]
    return Frontier(graph, tuple(points), {("optimal", 2): "no schedule that goes stage by stage fits into 2 B"}, 1.5)


def test_points_have_schedules_and_are_sorted_by_budget(frontier):
    assert [(s.strategy, s.budget) for s in frontier.points] == [
        ("optimal", 4),
        ("optimal", 6),
        ("optimal", 10),
        ("checkpoint-all", 10),
    ]
    assert frontier.strategies == ("optimal", "checkpoint-all")


def test_nondominated_points_fall_in_cost_as_their_peak_rises(frontier):
    chosen = frontier.nondominated()
    assert [(s.strategy, s.peak, s.cost) for s in chosen] == [
        ("optimal", 4, 26),
        ("optimal", 6, 21),
        ("optimal", 10, 17),
    ]
    dominated = Solution(frontier.graph, "late", Status.FEASIBLE, 8, solve(linear(8), 4).schedule, None, 0.0)
    assert Frontier(frontier.graph, (*frontier.solutions, dominated)).nondominated() == chosen


def test_random_points_are_chosen_as_the_definition_says(random_graph):
    graph = random_graph(3, layers=4)
    top = solve(graph, "100%").budget
    points = tuple(s for s in (solve(graph, int(share * top)) for share in np.linspace(0.5, 1, 8)) if s.schedule)
    chosen = Frontier(graph, points).nondominated()
    assert chosen
    pairs = [(s.peak or 0, s.cost or 0.0) for s in chosen]
    for point in points:
        assert any(peak <= (point.peak or 0) and cost <= (point.cost or 0.0) for peak, cost in pairs)
    for (peak, cost), (next_peak, next_cost) in itertools.pairwise(pairs):
        assert peak < next_peak
        assert cost > next_cost


def test_the_best_within_any_budget_comes_with_a_bound_that_is_valid_there(frontier):
    best = frontier.best(7)
    assert best is not None
    assert (best.budget, best.cost, best.lower_bound, str(best.status)) == (7, 21, 17, "feasible")
    assert (frontier.best("100%").cost, frontier.best("100%").status) == (17, Status.OPTIMAL)
    assert frontier.best(3) is None
    with pytest.raises(QuantityError, match="'much'"):
        frontier.best("much")


def test_a_file_brings_everything_back(frontier, tmp_path):
    path = frontier.save(tmp_path / "sweep.json")
    loaded = Frontier.load(path, linear(8))
    assert loaded.to_document() == frontier.to_document()
    assert loaded.messages == frontier.messages
    assert str(loaded) == str(frontier)
    assert [s.peak for s in loaded.points] == [s.peak for s in frontier.points]


def test_saving_replaces_a_file_or_leaves_it_alone(frontier, tmp_path):
    path = tmp_path / "sweep.json"
    frontier.save(path)
    before = path.read_text()
    with pytest.raises(OSError, match="No such file"):
        frontier.save(tmp_path / "missing" / "sweep.json")
    assert path.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["sweep.json"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.update(format="remat-explorer/solution"), "expected 'remat-explorer/sweep'"),
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d.update(colour="red"), "unknown key 'colour'"),
        (lambda d: d.update(points={}), "the entry 'points' is not a list"),
        (lambda d: d["graph"].update(sha256="0"), "for another graph"),
        (lambda d: d["points"][1].pop("peak"), "point 1 lacks the key 'peak'"),
        (lambda d: d["points"][1].update(status="perfect"), "perfect"),
        (lambda d: d["points"][1].update(cost=25.0), "point 1 says cost 25.0, but its schedule has 26.0"),
        (lambda d: d["points"][1].update(budget="4"), "not a number of bytes"),
        (lambda d: d["points"][1].update(budget=3), "above the budget"),
        (lambda d: d["points"][1].update(lower_bound="low"), "lower_bound of point 1 is not a number"),
        (lambda d: d["points"][1].update(strategy=7), "strategy of point 1 is not a string"),
        (lambda d: d["points"][1].update(runs="0123"), "not a list of lists"),
        (lambda d: d["points"][1].update(runs=[[-1]]), "not a list of lists"),
        (lambda d: d["points"][1].update(runs=[[40]]), "not those of this graph"),
        (lambda d: d["points"][1].update(runs=[]), "not a list of lists"),
        (lambda d: d["points"][1]["runs"][12].clear(), "the schedule of point 1 is refused"),
    ],
)
def test_a_damaged_file_is_refused_with_what_is_wrong(damage, message, frontier, tmp_path):
    document = frontier.to_document()
    damage(document)
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(document))
    with pytest.raises(SolutionError, match=message) as caught:
        Frontier.load(path, linear(8))
    assert str(path) in str(caught.value)


def test_a_bound_that_another_point_or_a_simulated_run_refutes_is_refused(frontier, tmp_path):
    graph, path = linear(8), tmp_path / "sweep.json"
    unknown = Solution(graph, "optimal", Status.UNKNOWN, 4, None, 27.0, 0.0)
    for points, said in (
        ((*frontier.solutions, unknown), "point 5 says lower_bound 27.0 within 4 B, but a schedule costs 26.0 there"),
        ((replace(unknown, budget=5),), "point 0 says lower_bound 27.0 within 5 B, but a schedule costs 22.0 there"),
        ((replace(unknown, status=Status.INFEASIBLE, budget=6, lower_bound=None),), 'point 0 says status "infeasible"'),
    ):
        Frontier(graph, points).save(path)
        with pytest.raises(SolutionError, match=re.escape(said)):
            Frontier.load(path, graph)


def test_a_sweep_belongs_to_its_graph(frontier, tmp_path):
    with pytest.raises(SolutionError, match="'linear8'"):
        Frontier.load(frontier.save(tmp_path / "sweep.json"), linear(4))


def test_the_text_is_a_table_with_the_reasons_below(frontier):
    head, *rows, reason = str(frontier).splitlines()
    assert head.split() == ["strategy", "budget", "peak", "cost", "overhead", "gap", "status"]
    assert rows[1].split() == ["optimal", "4", "B", "4", "B", "26", "+52.9", "%", "0", "%", "optimal"]
    assert len({row.rstrip().rfind(" ") for row in rows}) == 1  # the last column is aligned
    assert rows[0].split() == ["optimal", "2", "B", "infeasible"]
    assert reason == "no schedule that goes stage by stage fits into 2 B"


def test_schedules_survive_as_what_they_run(random_graph):
    for seed in range(8):
        graph = random_graph(seed, layers=4)
        for schedule in (checkpoint_all(graph), solve(graph, "75%").schedule):
            if schedule is not None:
                again = unpack_runs(json.loads(json.dumps(pack_runs(schedule))), graph, SolutionError)
                assert again.violation() is None
                assert again.cost == schedule.cost
                assert again.U.max() <= schedule.U.max()


def test_what_computes_everything_once_is_optimal_above_every_point(frontier):
    above = frontier.best(20)
    assert above is not None
    assert (above.status, above.cost, above.lower_bound, above.budget) == (Status.OPTIMAL, 17, 17, 20)
    small = Frontier(frontier.graph, (solve(frontier.graph, 4),))
    best = small.best(20)
    assert best is not None
    assert best.lower_bound is None  # 26 is more than 17, of which nothing is known here
