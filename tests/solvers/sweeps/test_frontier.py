"""The result of a sweep: what its points take from each other, curves of methods, its file, its text."""

import json
import re
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import replace

import numpy as np
import pytest

from remat_explorer.checker import check_schedule
from remat_explorer.errors import QuantityError, SolutionError, SolverError
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import Frontier, checkpoint_all, checkpoint_all_peak, solve, sweep
from remat_explorer.solvers.solution import Solution, pack_runs, unpack_runs
from remat_explorer.solvers.sweeps import own_points
from remat_explorer.solvers.sweeps.own_points import share_best
from remat_explorer.solvers.sweeps.sweep_run import answer_request
from tests.solvers.candidates import candidates_of
from tests.solvers.helpers import present, simple_graph


@pytest.fixture
def frontier():
    """Three proven points, one without a schedule, and checkpoint-all, of the chain of 8 layers."""
    graph = linear(8)
    points = [solve(graph, budget) for budget in (2, 4, 6, 10)] + [solve(graph, 10, "checkpoint-all")]
    return Frontier(graph, tuple(points), {("optimal", 2): "no schedule that goes stage by stage fits into 2 B"}, 1.5)


def test_nondominated_points_fall_in_cost_as_their_peak_rises(frontier):
    budgets = [(s.strategy, s.budget) for s in frontier.points]
    assert budgets == [*(("optimal", budget) for budget in (4, 6, 10)), ("checkpoint-all", 10)]
    chosen = frontier.nondominated()
    assert {s.strategy for s in chosen} == {"optimal"}
    assert [(s.peak, s.cost) for s in chosen] == [(4, 26), (6, 21), (10, 17)]
    dominated = Solution(frontier.graph, "late", Status.FEASIBLE, 8, solve(linear(8), 4).schedule, None, 0.0)
    assert Frontier(frontier.graph, (*frontier.solutions, dominated)).nondominated() == chosen


def test_the_best_within_any_budget_comes_with_a_bound_that_is_valid_there(frontier):
    best = present(frontier.best(7))
    assert (best.budget, best.cost, best.lower_bound, str(best.status)) == (7, 21, 17, "feasible")
    assert (frontier.best("100%").cost, frontier.best("100%").status) == (17, Status.OPTIMAL)
    assert frontier.best(3) is None
    above = frontier.best(20)  # what computes everything once is optimal above every point
    assert (above.status, above.cost, above.lower_bound, above.budget) == (Status.OPTIMAL, 17, 17, 20)
    best = Frontier(frontier.graph, (solve(frontier.graph, 4),)).best(20)
    assert present(best).lower_bound is None  # 26 is more than 17, of which nothing is known here
    with pytest.raises(QuantityError, match="'much'"):
        frontier.best("much")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.update(format="remat-explorer/solution"), "expected 'remat-explorer/sweep'"),
        (lambda d: d.update(version=2), "version 2"),
        (lambda d: d.update(colour="red"), "unknown key 'colour'"),
        (lambda d: d.update(points={}), "points is not a list"),
        (lambda d: d["graph"].update(sha256="0"), "for another graph"),
        (lambda d: d["points"][1].pop("peak"), "points\\[1\\] lacks the key 'peak'"),
        (lambda d: d["points"][1].update(status="perfect"), "perfect"),
        (lambda d: d["points"][1].update(cost=25.0), "points\\[1\\] says cost 25.0, but its schedule has 26.0"),
        (lambda d: d["points"][1].update(budget="4"), "not a number of bytes"),
        (lambda d: d["points"][1].update(budget=3), "above the budget"),
        (lambda d: d["points"][1].update(lower_bound="low"), "points\\[1\\].lower_bound is not a number"),
        (lambda d: d["points"][1].update(strategy=7), "points\\[1\\].strategy is not a string"),
        (lambda d: d["points"][1].update(runs="0123"), "not a list of lists"),
        (lambda d: d["points"][1].update(runs=[[-1]]), "not a list of lists"),
        (lambda d: d["points"][1].update(runs=[[40]]), "not those of this graph"),
        (lambda d: d["points"][1].update(runs=[]), "not a list of lists"),
        (lambda d: d["points"][1]["runs"][12].clear(), "the schedule of points\\[1\\] is refused"),
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
        ((*frontier.solutions, unknown), "points[5] says lower_bound 27.0 within 4 B, but a schedule costs 26.0 there"),
        ((replace(unknown, budget=5),), "points[0] says lower_bound 27.0 within 5 B, but a schedule costs 22.0 there"),
        (
            (replace(unknown, status=Status.INFEASIBLE, budget=6, lower_bound=None),),
            'points[0] says status "infeasible"',
        ),
    ):
        Frontier(graph, points).save(path)
        with pytest.raises(SolutionError, match=re.escape(said)):
            Frontier.load(path, graph)


def test_the_text_is_a_table_with_the_reasons_below(frontier):
    head, *rows, reason = str(frontier).splitlines()
    assert head.split() == ["strategy", "budget", "peak", "cost", "overhead", "gap", "status"]
    assert rows[1].split() == ["optimal", "4", "B", "4", "B", "26", "+52.9", "%", "0", "%", "proven", "best"]
    begins = (row.index("proven best" if "proven" in row else "infeasible") for row in rows)
    assert len({*begins}) == 1  # the last column is aligned
    assert rows[0].split() == ["optimal", "2", "B", "infeasible"]
    assert reason == "no schedule that goes stage by stage fits into 2 B"


def test_schedules_survive_as_what_they_run(random_graph):
    for seed in range(3):
        graph = random_graph(seed, layers=4)
        for schedule in (checkpoint_all(graph), solve(graph, "75%").schedule):
            if schedule is not None:
                again = unpack_runs(json.loads(json.dumps(pack_runs(schedule))), graph, SolutionError)
                assert again.violation() is None
                assert again.cost == schedule.cost
                assert again.U.max() <= schedule.U.max()


def point(budget, schedule=None, bound=None, strategy="optimal", status=Status.UNKNOWN, graph=None):
    return Solution(graph or linear(8), strategy, status, budget, schedule, bound, 1.0)


def test_a_schedule_goes_to_every_budget_of_its_strategy_from_its_peak_on_and_to_no_other():
    schedule = solve(linear(8), 5).schedule
    found_for_7 = Solution(linear(8), "optimal", Status.FEASIBLE, 7, schedule, None, 1.0)
    assert found_for_7.peak == 5
    found = share_best([*(point(budget) for budget in (4, 5, 8)), found_for_7, point(8, strategy="checkmate-ilp")])
    assert [s.schedule for s in found] == [None, schedule, schedule, schedule, None]
    assert [s.status for s in found[1:3]] == [Status.FEASIBLE] * 2


def test_a_bound_goes_to_smaller_budgets_of_every_strategy_and_to_no_larger_one():
    bound = point(6, bound=21.0)
    found = share_best([bound, point(5, bound=18.0), point(5, strategy="checkmate-ilp"), point(7, bound=19.0)])
    assert [s.lower_bound for s in found] == [21.0, 21.0, 21.0, 19.0]


def test_bounds_of_frontier_advancing_schedules_are_kept_from_other_schedules():
    """Both values at once in a single stage: cheaper than what the bound is about, which must not be cut down to it."""
    graph = simple_graph([[], [0]])
    free = Schedule(graph, np.array([[1, 1]]), np.zeros((1, 2)))
    assert not free.is_frontier_advancing
    foreign = point(2, free, None, "foreign", Status.FEASIBLE, graph)
    assert share_best([foreign, point(2, bound=3.0, graph=graph)])[0].lower_bound is None


def test_what_a_strategy_cannot_do_within_a_budget_it_cannot_do_within_a_smaller_one():
    held = share_best([solve(linear(8), 4), point(6, status=Status.INFEASIBLE)])  # which a schedule in hand refutes
    assert [str(s.status) for s in held] == ["optimal", "feasible"]
    impossible = point(6, strategy="checkpoint-all", status=Status.INFEASIBLE)
    found = share_best([point(5, strategy="checkpoint-all"), impossible, point(7, strategy="checkpoint-all"), point(5)])
    assert [str(s.status) for s in found] == ["infeasible", "infeasible", "unknown", "unknown"]


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


def in_executor(executor, graph, budgets, strategies) -> Frontier:
    return sweep(graph, budgets, strategies, executor, workers=1, time_limit=ENOUGH)


def test_at_every_budget_the_sweep_has_what_solve_has_and_costs_fall(random_graph):
    for graph, names in [(linear(9), GENERAL + CHAINS), (random_graph(1, layers=5), GENERAL)]:
        budgets = np.linspace(0.45, 1.2, 5) * checkpoint_all_peak(graph)
        executor = Recording()
        frontier = in_executor(executor, graph, [int(budget) for budget in budgets], names)
        assert [(request["strategy"], request["kind"]) for request in executor.requests] == [
            (name, "curve") for name in names
        ]  # each is asked once for all budgets
        assert frontier.strategies == tuple(names)
        for point in frontier.solutions:
            alone = solve(graph, point.budget, point.strategy)
            assert (point.cost, point.peak) == (alone.cost, alone.peak)
            assert (point.schedule is None) == (alone.schedule is None)
        for name in names:
            costs = [s.cost for s in frontier.solutions if s.strategy == name and s.cost is not None]
            assert costs == sorted(costs, reverse=True)


def test_own_points_are_all_schedules_of_the_method_each_at_its_peak(random_graph):
    """With few slots REVOLVE needs less than the budgets, with many more."""
    for graph, names in ((linear(8), ["griewank"]), (random_graph(1, layers=5), GENERAL)):
        frontier = in_executor(Recording(), graph, ["50%", "60%"], names)
        for name in names:
            expected = [(Plan.of(c.schedule).peak, c.schedule.cost, c.label) for c in candidates_of(name, graph)]
            own = frontier.own_points(name)
            assert sorted((p.peak, p.cost, p.label) for p in own) == sorted(expected)
            for point in own:
                assert check_schedule(present(point.schedule), point.budget).peak == point.budget
            assert [(p.peak, p.cost) for p in own] == sorted((p.peak, p.cost) for p in own)
        pairs = {(p.peak or 0, p.cost or 0.0) for name in names for p in frontier.own_points(name)}
        undominated = {(m, c) for m, c in pairs if not any(a <= m and b <= c and (a, b) != (m, c) for a, b in pairs)}
        assert {(p.peak, p.cost) for p in frontier.nondominated()} == undominated
        best = frontier.best("100%")  # keeping everything, which lies beyond both budgets
        assert present(best).cost == graph.total_cost


def test_points_get_bounds_of_other_strategies_and_never_one_above_their_cost(thread):
    frontier = sweep(linear(8), [3, 4, 6, 10], ["optimal", "griewank"], thread, time_limit=ENOUGH)
    optima = {s.budget: s.cost for s in frontier.solutions if s.strategy == "optimal"}
    for point in frontier.own_points("griewank"):
        larger = [cost for budget, cost in optima.items() if cost is not None and budget >= point.budget]
        assert point.lower_bound == max(larger)
        assert present(point.lower_bound) <= present(point.cost)
        assert (point.status is Status.OPTIMAL) == (point.lower_bound == point.cost)


def test_where_none_of_the_schedules_fits_it_says_so():
    frontier = in_executor(Recording(), linear(8), [4, 10], ["chen-sqrt-n"])
    poor, fine = frontier.solutions
    assert (poor.schedule, poor.status) == (None, Status.UNKNOWN)
    assert fine.schedule is not None
    assert frontier.messages == {("chen-sqrt-n", 4): "none of the schedules of 'chen-sqrt-n' fits into 4 B"}
    assert "chen-sqrt-n by itself: 1 schedule, peaks" in str(frontier)


def test_a_method_that_refuses_the_graph_costs_its_curve_says_so_once_and_leaves_nothing_in_the_cache(
    captured, thread, tmp_path, monkeypatch
):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    graph, names = captured("unet"), ["griewank", "linearized-sqrt-n"]
    for _ in range(2):  # the cache does not stand in for a curve
        frontier = sweep(graph, ["45%", "80%"], names, thread, time_limit=ENOUGH, cache=True)
        assert frontier.own_points("griewank") == ()
        assert len(frontier.own_points("linearized-sqrt-n")) >= 1
    with pytest.raises(SolverError) as refused:
        solve(graph, "80%", "griewank", cache=True)
    messages = [text for (name, _), text in frontier.messages.items() if name == "griewank"]
    assert messages == [f"'griewank' has no curve: {refused.value}"]


def test_a_worker_that_dies_costs_the_curve_of_its_method():
    frontier = in_executor(Recording(broken="griewank"), linear(8), [4, 10], ["griewank", "chen-sqrt-n"])
    assert [s.schedule is None for s in frontier.solutions if s.strategy == "griewank"] == [True, True]
    assert frontier.messages["griewank", 4] == "'griewank' has no curve: BrokenExecutor: killed"
    assert len(frontier.own_points("chen-sqrt-n")) == 1


def test_schedules_of_a_worker_are_checked(monkeypatch):
    """A worker that leaves a run out is believed nowhere."""
    runs = own_points.pack_runs
    monkeypatch.setattr(own_points, "pack_runs", lambda schedule: [*runs(schedule)[:-1], []])
    frontier = in_executor(Recording(), linear(8), [4, 10], ["griewank"])
    assert not frontier.points
    assert "'griewank' has no curve" in frontier.messages["griewank", 4]


def test_a_file_brings_points_own_points_and_messages_back_and_damage_is_seen(tmp_path):
    frontier = in_executor(Recording(), linear(8), [2, 4, 10], ["optimal", "griewank", "chen-sqrt-n"])
    loaded = Frontier.load(frontier.save(tmp_path / "sweep.json"), linear(8))
    assert loaded.to_document() == frontier.to_document()
    assert (str(loaded), loaded.messages) == (str(frontier), frontier.messages)
    assert [(p.peak, p.cost, p.label) for p in loaded.own_points("griewank")] == [
        (p.peak, p.cost, p.label) for p in frontier.own_points("griewank")
    ]
    assert [(p.peak, p.cost) for p in loaded.nondominated()] == [(p.peak, p.cost) for p in frontier.nondominated()]
    for damage, message in (
        (lambda document: document["own_points"][0].update(budget=100), "is 100 B, which is not its peak"),
        (lambda document: document["own_points"][0].update(label=3), "own_points\\[0\\].label is not a string"),
        (lambda document: document["own_points"][0].update(cost=1.0), "own_points\\[0\\] says cost"),
        (lambda document: document["own_points"][0].pop("label"), "own_points\\[0\\] lacks the key 'label'"),
        (lambda document: document.update(own_points={}), "not a list"),
    ):
        document = frontier.to_document()
        damage(document)
        path = tmp_path / "damaged.json"
        path.write_text(json.dumps(document))
        with pytest.raises(SolutionError, match=message):
            Frontier.load(path, linear(8))
