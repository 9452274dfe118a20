"""Solution files, version 1: what they say is held against their schedule, against others, and against itself."""

import numpy as np
import pytest

from remat_explorer.errors import SolutionError
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solution_summary import Status
from remat_explorer.solvers.ablation.ablation_result import Ablation
from remat_explorer.solvers.solution import Solution, proven_status
from remat_explorer.solvers.solver_interface import checkpoint_all
from remat_explorer.solvers.sweeps.frontier import Frontier

GRAPH = linear(8)
PROVEN = Solution(GRAPH, "optimal", Status.OPTIMAL, 10, checkpoint_all(GRAPH), 17.0, 0.1)


@pytest.fixture
def solution() -> Solution:
    graph = linear(2)
    S = np.array([[int(c) for c in row] for row in ["00000", "10000", "11000", "11100", "10010"]])
    return Solution(graph, "optimal", Status.OPTIMAL, 4, Schedule(graph, np.eye(5), S), 5.0, 0.01, "highs")


def test_round_trip_keeps_the_arrays_exactly(solution, tmp_path):
    path = solution.save(tmp_path / "solution.json")
    with pytest.raises(SolutionError, match=r"solution.json: this solution is for another graph, 'linear2'"):
        Solution.load(path, linear(3))
    again = Solution.load(path, solution.graph)
    assert again.schedule is not None
    assert solution.schedule is not None
    for name in ("R", "S"):
        assert np.array_equal(getattr(again.schedule, name), getattr(solution.schedule, name))
    assert again.to_document() == solution.to_document()
    assert (again.cost, again.peak, again.gap, again.overhead) == (5.0, 4, 0.0, 1.0)


def test_a_solution_without_a_schedule_round_trips():
    nothing = Solution(linear(2), "optimal", Status.INFEASIBLE, 2, None, None, 0.0)
    again = Solution.from_document(nothing.to_document(), linear(2))
    assert (again.schedule, again.cost, again.peak, again.gap, again.plan) == (None, None, None, None, None)
    assert "infeasible" in str(again)


@pytest.mark.parametrize(
    ("status", "budget", "bound", "said"),
    [
        (Status.INFEASIBLE, 5, None, r'says status "infeasible" within 5 B, but a schedule costs 22\.0 there'),
        (Status.UNKNOWN, 5, 23.0, r"says lower_bound 23\.0 within 5 B, but a schedule costs 22\.0 there"),
    ],
)
def test_a_file_that_claims_what_a_schedule_refutes_is_refused(status, budget, bound, said, tmp_path):
    claimed = Solution(linear(8), "optimal", status, budget, None, bound, 0.0)
    path = claimed.save(tmp_path / "solution.json")
    for load in (Solution.load, Solution.load_schedule):
        with pytest.raises(SolutionError, match=said):
            load(path, linear(8))


def test_a_bound_that_nothing_refutes_and_an_infeasible_of_a_method_of_few_schedules_are_read(tmp_path):
    for claimed in (
        Solution(linear(8), "optimal", Status.UNKNOWN, 5, None, 22.0, 0.0),
        Solution(linear(8), "checkpoint-all", Status.INFEASIBLE, 9, None, None, 0.0),
    ):
        path = claimed.save(tmp_path / "solution.json")
        assert Solution.load(path, linear(8)).to_document() == claimed.to_document()


def test_a_failed_write_leaves_the_file_that_was_there(solution, tmp_path, monkeypatch):
    path = solution.save(tmp_path / "solution.json")
    before = path.read_text()

    def full_disk(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        solution.save(path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


FALSE = [
    ({"lower_bound": 1e9}, "lower_bound 1000000000.0, but its schedule costs 17.0, which is less"),
    ({"lower_bound": 0.0, "gap": 1.0}, 'status "optimal" with lower_bound 0.0, which does not prove a cost of 17.0'),
    ({"lower_bound": None, "gap": None}, 'status "optimal" with lower_bound null'),
    ({"status": "infeasible"}, 'status "infeasible", but there is a schedule'),
    ({"status": []}, "status is none of optimal, feasible, infeasible, unknown: []"),
    ({"status": "feasible", "gap": 0.5}, "gap 0.5, but cost and lower_bound have 0.0"),
    ({"cost": 16.0}, "says cost 16.0, but its schedule has 17.0"),
    ({"peak": 9}, "says peak 9, but its schedule has 10"),
    ({"budget": float("nan")}, "is not a number of bytes: NaN"),
    ({"budget": 2**63 - 1}, "9223372036854775807 bytes, more than 8192 TiB"),
    ({"seconds": float("nan")}, "is not a number of at least 0: NaN"),
    ({"lower_bound": float("nan")}, "is not a number of at least 0: NaN"),
    ({"strategy": ["optimal"]}, 'is not a string: ["optimal"]'),
    ({"strategy": "\ud800"}, "half of a surrogate pair"),
    ({"solver": None}, "is not a string: null"),
]


@pytest.mark.parametrize(("claims", "message"), FALSE)
def test_a_false_claim_is_refused_and_quoted_in_a_solution_a_sweep_and_an_ablation(claims, message):
    sweep = Frontier(GRAPH, (PROVEN,)).to_document()
    ablation = Ablation(GRAPH, (), (10,), {((), 10): PROVEN}, {}).to_document()
    sweep["points"][0] |= claims
    ablation["sets"][0]["points"][0] |= claims
    for read, document in (
        (Solution.from_document, PROVEN.to_document() | claims),
        (Frontier.from_document, sweep),
        (Ablation.from_document, ablation),
    ):
        with pytest.raises(SolutionError) as caught:
            read(document, GRAPH)
        assert message in str(caught.value)


@pytest.mark.parametrize(
    ("key", "entry", "message"),
    [
        ("budget", 3, "its schedule is refused: stage 3 needs"),
        ("notes", "", "unknown key 'notes'"),
        ("version", 9, "version 9 of 'remat-explorer/solution'"),
        ("R", ["10x00"] * 5, "R is not a list of rows of digits"),
        ("S", ["00000", "1000"], "the rows of S differ in length"),
        ("S", ["00000"] * 5, "its schedule is refused: stage 1 computes 'v1' but its input 'v0'"),
    ],
)
def test_a_schedule_that_is_none_is_refused(solution, key, entry, message):
    with pytest.raises(SolutionError) as caught:
        Solution.from_document(solution.to_document() | {key: entry}, solution.graph)
    assert message in str(caught.value)


def test_a_schedule_of_so_many_stages_that_memory_would_not_do_is_refused(monkeypatch):
    monkeypatch.setattr("remat_explorer.solvers.solution.MOST_CELLS", 1000)
    document = Frontier(GRAPH, (PROVEN,)).to_document()
    document["points"][0]["runs"] = [[0]] * (1000 // 17 + 1)
    with pytest.raises(SolutionError, match="too large"):
        Frontier.from_document(document, GRAPH)


def test_a_status_follows_from_cost_and_bound_and_a_schedule_refutes_that_nothing_fits():
    assert proven_status(None, 3.0, infeasible=True) == (Status.INFEASIBLE, None)
    assert proven_status(10.0, 12.0) == (Status.OPTIMAL, 10.0)
    assert proven_status(10.0, 9.0, infeasible=True) == (Status.FEASIBLE, 9.0)


@pytest.mark.parametrize("runs", [[[2**63]], [[-1]], [[True]], [[0.5]], [["0"]], [0], "0", [], [[17 * 9]], [[10**400]]])
def test_runs_that_no_graph_has_are_refused(runs):
    document = Frontier(GRAPH, (PROVEN,)).to_document()
    for points in ({}, None, "points", [[]]):
        with pytest.raises(SolutionError, match=r"is not a list|is not a JSON object"):
            Frontier.from_document(document | {"points": points}, GRAPH)
    document["points"][0]["runs"] = runs
    with pytest.raises(SolutionError, match="run"):
        Frontier.from_document(document, GRAPH)
