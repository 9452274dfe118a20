"""Solutions: checked numbers only, and the solution file, version 1."""

import json

import numpy as np
import pytest

from remat_explorer.errors import SolutionError
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers.solution import Solution, Status


@pytest.fixture
def solution() -> Solution:
    graph = linear(2)
    S = np.array([[int(c) for c in row] for row in ["00000", "10000", "11000", "11100", "10010"]])
    return Solution(graph, "optimal", Status.OPTIMAL, 4, Schedule(graph, np.eye(5), S), 5.0, 0.01, "highs")


def document(solution: Solution) -> dict:
    return json.loads(json.dumps(solution.to_document()))


def test_round_trip_keeps_the_arrays_exactly(solution, tmp_path):
    again = Solution.load(solution.save(tmp_path / "solution.json"), solution.graph)
    assert again.schedule is not None
    assert solution.schedule is not None
    assert np.array_equal(again.schedule.R, solution.schedule.R)
    assert np.array_equal(again.schedule.S, solution.schedule.S)
    assert again.to_document() == solution.to_document()
    assert (again.cost, again.peak, again.gap, again.overhead) == (5.0, 4, 0.0, 1.0)


def test_a_solution_without_a_schedule_round_trips():
    nothing = Solution(linear(2), "optimal", Status.INFEASIBLE, 2, None, None, 0.0)
    again = Solution.from_document(document(nothing), linear(2))
    assert (again.schedule, again.cost, again.peak, again.gap, again.plan) == (None, None, None, None, None)
    assert "infeasible" in str(again)


@pytest.mark.parametrize(
    ("status", "budget", "bound", "said"),
    [
        (Status.INFEASIBLE, 5, None, r'says status "infeasible" within 5 B, but a schedule costs 22\.0 there'),
        (Status.INFEASIBLE, 10, None, r'says status "infeasible" within 10 B, but a schedule costs 17\.0 there'),
        (Status.UNKNOWN, 5, 23.0, r"says lower_bound 23\.0 within 5 B, but a schedule costs 22\.0 there"),
        (Status.UNKNOWN, 20, 1e9, r"says lower_bound 1000000000\.0 within 20 B, but a schedule costs 17\.0 there"),
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
        Solution(linear(8), "optimal", Status.INFEASIBLE, 2, None, None, 0.0),
        Solution(linear(8), "checkpoint-all", Status.INFEASIBLE, 9, None, None, 0.0),
    ):
        path = claimed.save(tmp_path / "solution.json")
        assert Solution.load(path, linear(8)).to_document() == claimed.to_document()


def test_a_solution_of_another_graph_is_refused(solution, tmp_path):
    path = solution.save(tmp_path / "solution.json")
    with pytest.raises(SolutionError, match=r"solution.json: this solution is for another graph, 'linear2'"):
        Solution.load(path, linear(3))


@pytest.mark.parametrize(
    ("key", "entry", "message"),
    [
        ("cost", 4.0, "says cost 4.0, but its schedule has 5.0"),
        ("peak", 3, "says peak 3, but its schedule has 4"),
        ("budget", 3, "its schedule is refused: stage 3 needs"),
        ("status", "best", 'the status "best" of the file is none of optimal, feasible, infeasible, unknown'),
        ("version", 9, "version 9 of 'remat-explorer/solution'"),
        ("R", ["10x00"] * 5, "R is not a list of rows of digits"),
        ("S", ["00000", "1000"], "the rows of S differ in length"),
        ("S", ["00000"] * 5, "its schedule is refused: stage 1 computes 'v1' but its input 'v0'"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(solution, key, entry, message):
    changed = document(solution) | {key: entry}
    with pytest.raises(SolutionError) as caught:
        Solution.from_document(changed, solution.graph)
    assert message in str(caught.value)


def test_an_unknown_key_is_refused_by_name(solution):
    with pytest.raises(SolutionError, match="unknown key 'notes'"):
        Solution.from_document(document(solution) | {"notes": ""}, solution.graph)


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
