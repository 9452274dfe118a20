"""The matrices without a browser: what is sent, and that state and widget follow one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import traitlets

import remat_explorer as rx
from remat_explorer.explorer.matrices import (
    COMPUTATIONS,
    LEVELS,
    MatrixCells,
    MatrixView,
    difference_planes,
    hover_labels,
)
from remat_explorer.explorer.state.state import State
from remat_explorer.figures.schedule_heatmap import (
    BOTH,
    FIRST,
    NEITHER,
    SECOND,
    computation_kinds,
    difference,
    memory_in_stages,
)
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.schedule import Schedule


@pytest.fixture(scope="module")
def tight() -> Any:
    """The eight-layer chain within 4 bytes: 9 recomputations."""
    return rx.solve(rx.linear(8), budget=4)


@pytest.fixture(scope="module")
def keep(tight: Any) -> Any:
    return rx.solve(tight.graph, budget="100%", strategy="checkpoint-all")


@pytest.fixture
def state(tight: Any) -> State:
    return State(graph=tight.graph, schedule=tight.schedule, solution=tight)


def spread_R(cells: MatrixCells, shape: tuple[int, ...]) -> np.ndarray:
    """R as the browser makes it from what it is sent."""
    sent = np.frombuffer(cells.runs, "<u4")
    assert sent[0] == shape[0]
    R = np.zeros(shape, np.uint8)
    R[np.repeat(np.arange(shape[0]), sent[1 : 1 + shape[0]]), sent[1 + shape[0] :]] = np.frombuffer(cells.R, np.uint8)
    return R


def spread_U(cells: MatrixCells, shape: tuple[int, ...]) -> np.ndarray:
    """U as the browser makes it from what it is sent."""
    U, last = np.zeros(shape, dtype="<u2"), [-1] * shape[0]
    before, during = np.frombuffer(cells.U, "<u2").reshape(2, -1)
    for i, (t, k) in enumerate(np.argwhere(spread_R(cells, shape))):
        U[t, last[t] + 1 : k], U[t, k], last[t] = before[i], during[i], k
    return U


def test_memory_travels_with_three_exact_digits(tight: Any) -> None:
    schedule = tight.schedule
    cells = MatrixCells.of(schedule)
    U = spread_U(cells, schedule.R.shape)
    assert cells.largest == schedule.U.max()
    true = memory_in_stages(schedule)
    assert np.allclose(U[~true.mask] / LEVELS * cells.largest, true.compressed(), rtol=1e-3)
    assert (U[true.mask] == 0).all()


def test_computations_travel_with_their_kind_and_implementation(tight: Any) -> None:
    schedule = tight.schedule
    cells = MatrixCells.of(schedule)
    R = spread_R(cells, schedule.R.shape)
    assert (computation_kinds(schedule) == R % COMPUTATIONS).all()
    assert (R // COMPUTATIONS == schedule.R).all()


def test_an_operation_with_several_implementations_travels_with_the_chosen_one() -> None:
    ways = (Implementation((), (0,), 1.0, name="fast"), Implementation((), (0,), 2.0, name="small"))
    last = Operation("read", "backward", (Implementation((0,), (1,), 1.0),))
    graph = Graph("pair", (Value("x", 4), Value("y", 4)), (Operation("make", "forward", ways), last))
    schedule = Schedule(graph, np.array([[2, 0], [0, 1]]), np.array([[0, 0], [1, 0]]))
    cells = MatrixCells.of(schedule)
    assert spread_R(cells, (2, 2)).tolist() == [[2 * COMPUTATIONS + 1, 0], [0, COMPUTATIONS + 2]]
    operations, values = hover_labels(graph)
    assert [operation[4] for operation in operations] == [["fast", "small"], []]
    assert values == [["x", 4, 0], ["y", 4, 1]]


def test_a_comparison_tells_both_schedules_apart(tight: Any, keep: Any) -> None:
    found, one, two = difference(tight.schedule, keep.schedule), tight.schedule, keep.schedule
    for cells, first, second in ((found.R, one.R, two.R), (found.S, one.S, two.S)):
        assert ((cells == BOTH) == ((first > 0) & (second > 0))).all()
        assert ((cells == FIRST) == ((first > 0) & (second == 0))).all()
        assert ((cells == SECOND) == ((first == 0) & (second > 0))).all()
        assert (cells == FIRST).any() or (cells == SECOND).any()


def test_schedules_of_different_lengths_compare_as_if_the_shorter_one_went_on_empty(tight: Any) -> None:
    graph = rx.linear(1)
    keep = Schedule(graph, np.eye(3), np.tril(np.ones((3, 3)), -1))
    single = Schedule(graph, np.ones((1, 3)), np.zeros((1, 3)))
    assert difference(single, keep).R.tolist() == [
        [BOTH, FIRST, FIRST],
        [NEITHER, SECOND, NEITHER],
        [NEITHER, NEITHER, SECOND],
    ]
    planes, _, rows = difference_planes(single, keep)
    assert rows == 3
    assert list(planes) == [0b10000000, 0b01000000, 0b00100000, 0b01100000, 0b01000000, 0b00100000]
    with pytest.raises(rx.errors.ScheduleError, match=r"'linear1'.*cannot be compared"):
        difference(keep, tight.schedule)


def test_only_a_schedule_of_the_same_graph_is_compared(state: State, tight: Any, keep: Any) -> None:
    widget = MatrixView(state).widget
    assert widget.compared_computed == b""
    state.other = keep
    assert (widget.compared_computed, widget.compared_kept, widget.rows) == difference_planes(
        tight.schedule, keep.schedule
    )
    state.other = rx.solve(rx.linear(4), budget="100%", strategy="checkpoint-all")
    assert (widget.compared_computed, widget.compared_kept) == (b"", b"")
    state.other = tight  # itself
    assert widget.compared_computed == b""


def test_the_zoom_is_clipped_ordered_and_empty_for_the_whole(state: State) -> None:
    state.zoom = (12, 4, -3, 99)
    assert state.zoom == (4, 12, 0, 16)
    state.zoom = (0, 16, 0, 16)
    assert state.zoom == ()
    with pytest.raises(traitlets.TraitError, match="first and last stage, first and last operation"):
        state.zoom = (1, 2)
    state.zoom = (4, 12, 2, 9)
    state.schedule = Schedule(state.schedule.graph, np.ones((1, 17)), np.zeros((1, 17)))  # type: ignore[union-attr]
    assert state.zoom == (0, 0, 2, 9)
    state.schedule = None
    assert state.zoom == ()


def test_the_zoom_of_script_and_browser_are_one(state: State) -> None:
    widget = MatrixView(state).widget
    state.zoom = (4, 12, 2, 9)
    assert widget.zoom == [4, 12, 2, 9]
    widget.zoom = [9, 7, 3, 30]  # what a rectangle in the browser may do
    assert state.zoom == (7, 9, 3, 16)
    assert widget.zoom == [7, 9, 3, 16]
    widget.zoom = []
    assert state.zoom == ()


def test_the_part_on_the_screen_moves_along_with_the_cursor(state: State) -> None:
    MatrixView(state)
    state.zoom, state.stage, state.value = (4, 8, 2, 6), 4, 2
    state.stage = 9
    assert state.zoom == (5, 9, 2, 6)
    state.value = 0
    assert state.zoom == (5, 9, 0, 4)
    state.stage = 7
    assert state.zoom == (5, 9, 0, 4)


def test_what_is_found_is_marked_and_the_keys_of_the_browser_reach_it(state: State) -> None:
    widget = MatrixView(state).widget
    state.search = "backward"
    backward = [k for k, node in enumerate(state.graph.operations) if node.phase == "backward"]  # type: ignore[union-attr]
    assert widget.found == backward
    widget._handle_custom_msg({"found": -1}, [])
    assert state.value == widget.value == backward[-1]
    assert state.stage == widget.stage == backward[-1]


def test_the_matrices_hide_while_the_model_is_shown(state: State) -> None:
    widget = MatrixView(state).widget
    assert widget.layout.display is None
    state.picture = "model"
    assert widget.layout.display == "none"
    state.picture = "matrices"
    assert widget.layout.display is None


def test_a_schedule_that_is_shown_already_is_not_sent_again(state: State, tight: Any) -> None:
    widget, sent = MatrixView(state).widget, []
    widget.observe(lambda change: sent.append(change["name"]), ["R", "S", "U", "compared_computed"])
    state.other = replace(tight)  # another solution, the same schedule
    assert sent == []
    state.other = None
    assert sent == []
