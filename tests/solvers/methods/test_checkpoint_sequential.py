"""checkpoint_sequential on a graph: what runs again, what it needs, and which graphs it is for."""

from __future__ import annotations

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.errors import SolverError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.plan import Plan
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.methods.checkpoint_sequential import blocks, checkpoint_sequential_candidates
from remat_explorer.solvers.solution import Status


def schedule_with(graph: Graph, segments: int):
    (candidate,) = checkpoint_sequential_candidates(graph, segments)
    return candidate.schedule


@pytest.mark.parametrize("segments", range(1, 9))
def test_of_each_segment_but_the_last_all_but_what_it_hands_on_runs_once_more(segments):
    size = 8 // segments
    schedule = schedule_with(rx.linear(8), segments)
    again = [k for t, k in zip(*np.nonzero(schedule.R), strict=True) if t != k]
    expected = [k for k in range(size * (segments - 1)) if (k + 1) % size]
    assert sorted(again) == expected
    rx.check(schedule.graph, schedule.R, schedule.S)


def test_a_segment_runs_again_in_one_stage_where_its_backward_pass_begins():
    schedule = schedule_with(rx.linear(8), 2)
    stages = {int(t) for t, k in zip(*np.nonzero(schedule.R), strict=True) if t != k}
    reads = [k for k in range(9, 17) if set(schedule.graph.inputs(k)) & {0, 1, 2}]
    assert stages == {min(reads)}


def test_within_the_forward_pass_only_inputs_of_segments_are_kept():
    schedule = schedule_with(rx.linear(8), 4)
    assert np.flatnonzero(schedule.S[8]).tolist() == [1, 3, 5, 6, 7]  # inputs, and the last segment whole


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "mobilenet_v1", "unet"])
def test_schedules_of_captured_models_pass_the_checker_and_save_memory(data, name):
    graph = Graph.load(str(data / "captured" / f"{name}.json"))
    candidates = list(checkpoint_sequential_candidates(graph))
    peaks = [rx.check(graph, one.schedule.R, one.schedule.S).peak for one in candidates]
    assert candidates[0].schedule.cost == pytest.approx(graph.total_cost)
    assert min(peaks) < 0.9 * peaks[0]
    forward = graph.costs[~graph.is_backward].sum()
    assert all(one.schedule.cost <= graph.total_cost + forward for one in candidates)


def test_blocks_have_branches_inside_and_one_value_between_them():
    """a, then b and c beside each other, joined by d; b reads a, c reads a."""
    graph = Graph(
        "diamond",
        tuple(Value(name, 1) for name in "abcde"),
        (
            operation("a", "forward", [], [0], 1),
            operation("b", "forward", [0], [1], 1),
            operation("c", "forward", [0], [2], 1),
            operation("d", "forward", [1, 2], [3], 1),
            operation("e", "backward", [3, 1], [4], 1),
        ),
    )
    assert blocks(graph) == [[0], [1, 2, 3]]


def test_blocks_of_resnet50_are_its_residual_blocks(data):
    lengths = [len(block) for block in blocks(Graph.load(str(data / "captured" / "resnet50.json")))]
    assert sum(length > 1 for length in lengths) == 16


def test_solve_takes_the_cheapest_number_of_segments_that_fits_and_proves_nothing(data):
    graph = Graph.load(str(data / "captured" / "vgg16.json"))
    solution = rx.solve(graph, "85%", "checkpoint-sequential")
    schedules = [one.schedule for one in checkpoint_sequential_candidates(graph)]
    fitting = [schedule.cost for schedule in schedules if Plan.of(schedule).peak <= solution.budget]
    assert len(fitting) < len(schedules)
    assert (solution.status, solution.cost, solution.lower_bound) == (Status.FEASIBLE, min(fitting), None)
    assert rx.solve(graph, "85%", "checkpoint-sequential", segments=2).status == Status.UNKNOWN


def test_a_graph_that_no_value_cuts_is_refused_by_name():
    graph = Graph("lone", (Value("a", 1),), (operation("a", "forward", [], [0], 1),))
    with pytest.raises(SolverError, match="no value cuts the forward pass of 'lone' in two"):
        rx.solve(graph, 10, "checkpoint-sequential")


@pytest.mark.parametrize("segments", [0, 9, 2.5, "two", True])
def test_a_number_of_segments_that_is_none_is_quoted(segments):
    with pytest.raises(SolverError, match=f"segments is {segments!r}; expected a whole number from 1 to 8"):
        rx.solve(rx.linear(8), 100, "checkpoint-sequential", segments=segments)


def test_the_knob_lists_all_numbers_of_segments():
    knob = STRATEGIES["checkpoint-sequential"].knob
    assert knob is not None
    assert list(knob.values(rx.linear(5))) == [1, 2, 3, 4, 5]
