"""Sweeps of methods that do not ask for the budget: their own points, and what follows from them at each budget."""

from __future__ import annotations

import json
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

from remat_explorer.checker import check
from remat_explorer.errors import SolutionError, SolverError
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solvers import STRATEGIES, Frontier, checkpoint_all_peak, solve, sweep
from remat_explorer.solvers.solution import Status
from remat_explorer.solvers.sweeps.own_points import read_curve
from remat_explorer.solvers.sweeps.sweep_run import answer_request

ENOUGH = 60.0  # seconds per point; every search of these tests ends by itself long before
GENERAL = ["checkpoint-last", "ap-sqrt-n", "ap-greedy", "linearized-sqrt-n", "linearized-greedy"]
CHAINS = ["griewank", "chen-sqrt-n", "chen-greedy", "checkpoint-sequential"]


class Recording(Executor):
    """Does what it is asked at once, and notes it; a strategy of ``broken`` kills its worker."""

    def __init__(self, broken: str = "") -> None:
        self.requests: list[dict] = []
        self.broken = broken

    def submit(self, fn, /, *args, **kwargs) -> Future:
        future: Future = Future()
        request = json.loads(args[1]) if fn is answer_request else {}
        self.requests.append(request)
        if request.get("strategy") == self.broken:
            future.set_exception(BrokenExecutor("killed"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture
def thread():
    """One thread of this process."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


def in_executor(executor, graph, budgets, strategies) -> Frontier:
    return sweep(graph, budgets, strategies, executor, workers=1, time_limit=ENOUGH)


def test_at_every_budget_the_sweep_has_what_solve_has(random_graph):
    graphs = [random_graph(seed, layers=5) for seed in range(4)]
    for graph, names in [(linear(9), GENERAL + CHAINS), *((graph, GENERAL) for graph in graphs)]:
        budgets = np.linspace(0.45, 1.2, 7) * checkpoint_all_peak(graph)
        frontier = in_executor(Recording(), graph, [int(budget) for budget in budgets], names)
        assert frontier.strategies == tuple(names)
        for point in frontier.solutions:
            alone = solve(graph, point.budget, point.strategy)
            assert (point.cost, point.peak) == (alone.cost, alone.peak)
            assert (point.schedule is None) == (alone.schedule is None)


def test_a_method_is_asked_once_for_all_budgets():
    executor = Recording()
    in_executor(executor, linear(8), [3, 4, 5, 6, 8, 10], ["chen-greedy", "griewank"])
    assert [(request["strategy"], request["kind"]) for request in executor.requests] == [
        ("chen-greedy", "curve"),
        ("griewank", "curve"),
    ]


def test_own_points_are_all_schedules_of_the_method_each_at_its_peak(random_graph):
    for graph in (linear(9), random_graph(1, layers=5)):
        frontier = in_executor(Recording(), graph, ["60%"], GENERAL)
        for name in GENERAL:
            candidates = STRATEGIES[name].candidates
            assert candidates is not None
            expected = [(Plan.of(c.schedule).peak, c.schedule.cost, c.label) for c in candidates(graph)]
            own = frontier.own_points(name)
            assert sorted((p.peak, p.cost, p.label) for p in own) == sorted(expected)
            for point in own:
                assert point.schedule is not None
                assert check(graph, point.schedule.R, point.schedule.S, point.budget).peak == point.budget
            assert [(p.peak, p.cost) for p in own] == sorted((p.peak, p.cost) for p in own)


def test_own_points_lie_between_the_budgets_and_beyond_them():
    """REVOLVE on a chain: with few slots it needs less than the budgets, with many more."""
    frontier = in_executor(Recording(), linear(8), [5, 6], ["griewank"])
    peaks = [point.peak for point in frontier.own_points("griewank")]
    assert min(peaks) < 5
    assert max(peaks) > 6
    pairs = {(p.peak, p.cost or 0.0) for p in frontier.own_points("griewank")}
    undominated = {(m, c) for m, c in pairs if not any(a <= m and b <= c and (a, b) != (m, c) for a, b in pairs)}
    assert {(p.peak, p.cost) for p in frontier.nondominated()} == undominated
    best = frontier.best(10)
    assert best is not None
    assert (best.cost, best.budget) == (17, 10)  # keeping everything, which lies beyond both budgets


def test_points_get_bounds_of_other_strategies_and_never_one_above_their_cost(thread):
    frontier = sweep(linear(8), [3, 4, 6, 10], ["optimal", "griewank"], thread, time_limit=ENOUGH)
    optima = {s.budget: s.cost for s in frontier.solutions if s.strategy == "optimal"}
    for point in frontier.own_points("griewank"):
        larger = [cost for budget, cost in optima.items() if cost is not None and budget >= point.budget]
        assert point.lower_bound == max(larger)
        assert point.cost is not None
        assert point.lower_bound is not None
        assert point.lower_bound <= point.cost
        assert (point.status is Status.OPTIMAL) == (point.lower_bound == point.cost)


def test_costs_fall_from_budget_to_budget(random_graph):
    for seed in range(4):
        frontier = in_executor(Recording(), random_graph(seed, layers=5), 8, GENERAL)
        for name in GENERAL:
            costs = [s.cost for s in frontier.solutions if s.strategy == name and s.cost is not None]
            assert costs == sorted(costs, reverse=True)


def test_where_none_of_the_schedules_fits_it_says_so():
    frontier = in_executor(Recording(), linear(8), [4, 10], ["chen-sqrt-n"])
    poor, fine = frontier.solutions
    assert (poor.schedule, poor.status) == (None, Status.UNKNOWN)
    assert fine.schedule is not None
    assert frontier.messages == {("chen-sqrt-n", 4): "none of the schedules of 'chen-sqrt-n' fits into 4 B"}
    assert "chen-sqrt-n by itself: 1 schedule, peaks" in str(frontier)


def test_a_method_without_time_for_all_of_its_schedules_says_so():
    executor = Recording()
    frontier = sweep(linear(8), [3, 10], ["griewank"], executor, workers=1, time_limit=0.0)
    assert len(frontier.own_points("griewank")) == 1
    expected = "none of the schedules of 'griewank' that there was time for fits into 3 B"
    assert frontier.messages["griewank", 3] == expected


def test_a_method_that_refuses_the_graph_costs_its_curve_and_says_so_once(captured, thread):
    graph = captured("unet")
    with pytest.raises(SolverError) as refused:
        solve(graph, "60%", "griewank")
    budgets = ["45%", "60%", "80%"]
    frontier = sweep(graph, budgets, ["griewank", "linearized-sqrt-n"], thread, time_limit=ENOUGH)
    assert frontier.own_points("griewank") == ()
    assert len(frontier.own_points("linearized-sqrt-n")) >= 1
    messages = [text for (name, _), text in frontier.messages.items() if name == "griewank"]
    assert messages == [f"'griewank' has no curve: {refused.value}"]


def test_a_worker_that_dies_costs_the_curve_of_its_method():
    frontier = in_executor(Recording(broken="griewank"), linear(8), [4, 10], ["griewank", "chen-sqrt-n"])
    assert [s.schedule is None for s in frontier.solutions if s.strategy == "griewank"] == [True, True]
    assert frontier.messages["griewank", 4] == "'griewank' has no curve: BrokenExecutor: killed"
    assert len(frontier.own_points("chen-sqrt-n")) == 1


def test_schedules_of_a_worker_are_checked(monkeypatch):
    """A worker that leaves a run out is believed nowhere."""
    from remat_explorer.solvers.sweeps import own_points

    def broken(schedule):
        return [*runs(schedule)[:-1], []]

    runs = own_points.pack_runs
    monkeypatch.setattr(own_points, "pack_runs", broken)
    frontier = in_executor(Recording(), linear(8), [4, 10], ["griewank"])
    assert not frontier.points
    assert "'griewank' has no curve" in frontier.messages["griewank", 4]


def test_what_is_no_curve_is_refused_with_a_quotation():
    for text in ("[]", "{}", "nonsense", '{"candidates": [{"label": ""}], "complete": true, "seconds": 0}'):
        with pytest.raises(SolverError, match="cannot be read"):
            read_curve(text, linear(4))
    with pytest.raises(SolverError, match="no chain"):
        read_curve('{"error": "it is no chain"}', linear(4))


def test_the_cache_does_not_stand_in_for_a_curve(tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    for _ in range(2):
        frontier = sweep(linear(8), [4, 10], ["griewank"], Recording(), workers=1, time_limit=ENOUGH, cache=True)
        assert len(frontier.own_points("griewank")) > 1


def test_a_method_that_refuses_the_graph_leaves_nothing_in_the_cache(captured, tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    sweep(captured("unet"), ["60%"], ["griewank"], Recording(), workers=1, time_limit=ENOUGH, cache=True)
    with pytest.raises(SolverError, match="chain"):
        solve(captured("unet"), "60%", "griewank", cache=True)


def test_a_file_brings_own_points_back_and_damage_is_seen(tmp_path):
    frontier = in_executor(Recording(), linear(8), [4, 10], ["griewank", "chen-sqrt-n"])
    loaded = Frontier.load(frontier.save(tmp_path / "sweep.json"), linear(8))
    assert loaded.to_document() == frontier.to_document()
    assert [p.label for p in loaded.own_points("griewank")] == [p.label for p in frontier.own_points("griewank")]
    assert [(p.peak, p.cost) for p in loaded.nondominated()] == [(p.peak, p.cost) for p in frontier.nondominated()]
    for damage, message in (
        (lambda own: own[0].update(budget=100), "not its peak"),
        (lambda own: own[0].update(label=3), "label of own point 0"),
        (lambda own: own[0].update(cost=1.0), "own point 0 says cost"),
        (lambda own: own[0].pop("label"), "own point 0 lacks the key 'label'"),
    ):
        document = frontier.to_document()
        damage(document["own_points"])
        path = tmp_path / "damaged.json"
        path.write_text(json.dumps(document))
        with pytest.raises(SolutionError, match=message):
            Frontier.load(path, linear(8))
    document = frontier.to_document() | {"own_points": {}}
    (tmp_path / "damaged.json").write_text(json.dumps(document))
    with pytest.raises(SolutionError, match="not a list"):
        Frontier.load(tmp_path / "damaged.json", linear(8))
