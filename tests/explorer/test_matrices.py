"""The matrices and the row above the pictures without a browser: what is sent, zoom, search, and folded blocks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import traitlets

import remat_explorer as rx
from remat_explorer.errors import QuantityError
from remat_explorer.explanations import values_of_stages
from remat_explorer.explorer import State
from remat_explorer.explorer.matrices import (
    COMPUTATIONS,
    LEVELS,
    MatrixCells,
    MatrixView,
    difference_planes,
    hover_labels,
)
from remat_explorer.explorer.model_view import ModelView, graph_layout
from remat_explorer.explorer.scrubber import Scrubber, SearchField
from remat_explorer.explorer.state.navigation import find_operations
from remat_explorer.figures import folded_picture
from remat_explorer.figures.schedule_heatmap import computation_kinds, memory_in_stages
from remat_explorer.graph import Graph, Implementation, Operation, RepeatedBlocks, Value
from remat_explorer.solvers import checkpoint_all
from tests.core.repeated_graphs import Network, transformer
from tests.explorer.driven import captured


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


def test_computations_travel_with_their_kind_and_memory_with_three_exact_digits(tight: Any) -> None:
    schedule = tight.schedule
    cells = MatrixCells.of(schedule)
    R, U = (spread(cells, schedule.R.shape) for spread in (spread_R, spread_U))
    assert (computation_kinds(schedule) == R % COMPUTATIONS).all()
    assert (R // COMPUTATIONS == schedule.R).all()
    assert cells.largest == schedule.U.max()
    true = memory_in_stages(schedule)
    assert np.allclose(U[~true.mask] / LEVELS * cells.largest, true.compressed(), rtol=1e-3)
    assert (U[true.mask] == 0).all()


def test_an_operation_with_several_implementations_travels_with_the_chosen_one() -> None:
    ways = (Implementation((), (0,), 1.0, name="fast"), Implementation((), (0,), 2.0, name="small"))
    last = Operation("read", "backward", (Implementation((0,), (1,), 1.0),))
    graph = Graph("pair", (Value("x", 4), Value("y", 4)), (Operation("make", "forward", ways), last))
    cells = MatrixCells.of(rx.Schedule(graph, np.array([[2, 0], [0, 1]]), np.array([[0, 0], [1, 0]])))
    assert spread_R(cells, (2, 2)).tolist() == [[2 * COMPUTATIONS + 1, 0], [0, COMPUTATIONS + 2]]
    operations, values = hover_labels(graph)
    assert [operation[4] for operation in operations] == [["fast", "small"], []]
    assert values == [["x", 4, 0], ["y", 4, 1]]


def test_schedules_of_different_lengths_compare_as_if_the_shorter_one_went_on_empty() -> None:
    graph = rx.linear(1)
    keep = rx.Schedule(graph, np.eye(3), np.tril(np.ones((3, 3)), -1))
    planes, _, rows = difference_planes(rx.Schedule(graph, np.ones((1, 3)), np.zeros((1, 3))), keep)
    assert rows == 3
    assert list(planes) == [0b10000000, 0b01000000, 0b00100000, 0b01100000, 0b01000000, 0b00100000]


def test_only_another_schedule_of_the_same_graph_is_compared(state: Any, tight: Any, keep: Any) -> None:
    widget, sent = MatrixView(state).widget, []
    assert widget.compared_computed == b""
    widget.observe(lambda change: sent.append(change["name"]), ["R", "S", "U", "compared_computed"])
    state.other = replace(tight)  # another solution, the same schedule
    state.other = None
    assert sent == []
    state.other = keep
    assert (widget.compared_computed, widget.compared_kept, widget.rows) == difference_planes(
        tight.schedule, keep.schedule
    )
    for other in (rx.solve(rx.linear(4), "100%", "checkpoint-all"), tight):
        state.other = other
        assert (widget.compared_computed, widget.compared_kept) == (b"", b"")


def test_the_zoom_is_clipped_ordered_and_empty_for_the_whole(state: Any) -> None:
    widget = MatrixView(state).widget
    state.zoom = (12, 4, -3, 99)
    assert state.zoom == (4, 12, 0, 16)
    state.zoom = (0, 16, 0, 16)
    assert state.zoom == ()
    with pytest.raises(traitlets.TraitError, match="first and last stage, first and last operation"):
        state.zoom = (1, 2)
    widget.zoom = [9, 7, 3, 30]  # what a rectangle in the browser may do
    assert (state.zoom, widget.zoom) == ((7, 9, 3, 16), [7, 9, 3, 16])
    state.zoom, state.stage, state.value = (4, 12, 2, 9), 4, 2
    state.value = 0
    assert widget.zoom == [4, 12, 0, 7]  # it moves along with the cursor
    state.schedule = rx.Schedule(state.graph, np.ones((1, 17)), np.zeros((1, 17)))
    assert state.zoom == (0, 0, 0, 7)
    state.schedule = None
    assert state.zoom == ()


MANY_LAYERS = 13  # 421 operations
CHAIN = rx.linear(4)


@pytest.fixture
def kept() -> Any:
    return State(graph=CHAIN, schedule=checkpoint_all(CHAIN))


def test_while_the_stages_play_the_value_is_the_one_that_the_stage_is_about_until_the_last(kept: Any) -> None:
    bar, values = Scrubber(kept).bar, values_of_stages(kept.schedule)
    bar.stage = 3
    assert kept.value == 0
    bar.playing = True
    bar.stage = 4
    assert kept.value == values[4] != 0
    heard: list[bool] = []
    bar.observe(lambda change: heard.append(change["new"]), "playing")
    bar.set_state({"stage": 8, "playing": False})  # a page that heard of playing again would begin at stage 0
    assert (kept.stage, kept.playing, bar.stage, bar.playing, kept.value) == (8, False, 8, False, values[8])
    assert heard == [False]
    empty = State()
    bar = Scrubber(empty).bar
    empty.playing = True  # without a schedule
    assert (bar.stages, bar.playing, empty.playing) == (0, False, False)


def test_every_word_and_size_must_match() -> None:
    network = captured("vgg16")

    def largest(k: int) -> int:
        return max(network.values[v].bytes for v in network.outputs(k))

    found = find_operations(network, "CONV backward >10MiB")
    nodes = enumerate(network.operations)
    convolutions = [k for k, node in nodes if "conv" in node.name and node.phase == "backward"]
    assert found == tuple(k for k in convolutions if largest(k) > 10 * 2**20)
    assert 0 < len(found) < len(convolutions) == len(find_operations(network, "conv backward"))
    assert find_operations(network, "> 10 MiB conv") == find_operations(network, "conv >10MiB")
    between = find_operations(network, ">=1MiB <= 64 MiB")
    assert between
    assert all(2**20 <= largest(k) <= 2**26 for k in between)
    assert network.producer[5] in find_operations(network, network.values[5].name)  # by the operation that writes it
    for words in ("  ", "there_is_none", "< 10 apples"):  # the last: ten bytes, and a word that no operation has
        assert find_operations(network, words) == ()
    for words in (">", "conv >much"):
        with pytest.raises(QuantityError):
            find_operations(network, words)


def test_the_state_finds_in_the_graph_of_the_moment_and_selects_what_is_found(state: Any) -> None:
    state.search = "backward"
    for k in state.found:
        state.select_found()
        assert state.graph.producer[state.value] == k
        assert state.stage == state.schedule.R[:, k].argmax()
    state.select_found(-1)
    assert state.graph.producer[state.value] == state.found[-2]
    state.search = "forward recomputed"
    assert state.found == tuple(np.flatnonzero((state.schedule.R > 0).sum(axis=0) > 1))
    shown, state.schedule = state.schedule, checkpoint_all(state.graph)
    assert state.found == ()
    state.schedule = shown
    assert state.found
    state.search = "v8"
    assert state.found == (8,)
    state.graph = rx.linear(2)
    assert state.found == ()
    state.search = "v1 >"
    assert state.found == ()


def test_buttons_go_through_what_is_found_and_what_cannot_be_read_is_quoted_as_text(kept: Any) -> None:
    view = SearchField(kept)
    assert view.next.layout.display == "none"  # there is nothing to go to
    view.field.value = "backward"
    view.next.click()
    view.previous.click()
    assert ">5 of 5<" in view.counter.value
    view.field.value = "<nothing"
    assert ">no size<" in view.counter.value
    assert "<nothing" not in view.counter.value
    assert view.next.layout.display == "none"
    kept.search = ""
    assert view.field.value == ""


@pytest.fixture(scope="module")
def large() -> Graph:
    return transformer(MANY_LAYERS)


@pytest.fixture
def folded(large: Graph) -> Any:
    return State(graph=large, schedule=checkpoint_all(large))


def test_a_large_graph_is_folded_at_first_and_a_small_one_is_not(folded: Any, large: Graph) -> None:
    view = MatrixView(folded)
    assert view.widget.blocks[0]["short"][3] == "3"
    assert view.widget.folded == [0]
    folded.unfold(0)
    assert view.widget.folded == []
    folded.graph = transformer(4)
    assert folded.folded == ()
    assert folded.blocks[0].copies == 4
    folded.graph = large
    assert (folded.folded, view.widget.folded) == ((0,), [0])
    state = State(graph=rx.linear(8))
    with pytest.raises(traitlets.TraitError, match=r"\(1,\) are no repeated blocks; there are numbers from 0 to 0"):
        state.folded = (1,)
    with pytest.raises(traitlets.TraitError, match="none, as this graph repeats no block"):
        State().folded = (0,)


def test_what_is_folded_away_is_where_the_first_copy_is_and_the_zoom_stays_there(folded: Any) -> None:
    MatrixView(folded)
    (blocks,) = folded.blocks
    assert folded.operation_shown(int(blocks.forward[7, 3])) == blocks.forward[0, 3]
    assert folded.stage_shown(int(blocks.backward[7, 5])) == blocks.backward[0, 5]
    assert folded.operation_shown(0) == 0  # of no block
    first, last = int(blocks.forward[0, 0]), int(blocks.forward[0, -1])
    folded.zoom = (first, last, first, last)
    for copy in range(blocks.copies):
        folded.stage = int(blocks.forward[copy, 4])
    assert folded.zoom == (first, last, first, last)


def test_the_model_has_one_box_on_each_rail_for_all_copies_and_folds_with_the_state(folded: Any, large: Graph) -> None:
    (blocks,) = folded.blocks
    layout, packed = graph_layout(large, (0,))
    boxes = np.frombuffer(packed, "<f4").reshape(-1, 4)
    for operations in (blocks.forward, blocks.backward):
        assert len(np.unique(boxes[operations.ravel()], axis=0)) == 1
    assert len(np.unique(boxes, axis=0)) == large.n - 32 * MANY_LAYERS + 2
    assert layout["blocks"][0][:2] == [f"blocks.0–{MANY_LAYERS - 1}", MANY_LAYERS]
    _, unfolded = graph_layout(large)
    assert len(np.unique(np.frombuffer(unfolded, "<f4").reshape(-1, 4), axis=0)) == large.n

    folded.picture = "model"
    widget = ModelView(folded).widget
    assert widget.picture["folded"] == layout["folded"] == [0]
    columns = widget.picture["columns"]
    widget.folded = []  # as a click does
    assert folded.folded == ()
    assert widget.picture["folded"] == []
    assert widget.picture["columns"] > columns
    folded.fold()
    assert widget.folded == widget.picture["folded"] == [0]


def test_a_block_that_something_outside_runs_between_is_not_folded_in_the_model() -> None:
    network = Network("probed")
    y = network.add("entry", (), 1, 1)
    for number in range(4):
        y = network.add(f"layer{number}", (y,), 1, 1)
        if number == 1:
            probe = network.add("probe", (y,), 9, 1)
            y = network.add("joined", (y, probe), 9, 1)
    copies = np.array([[1], [2], [5]])
    made_up = RepeatedBlocks(copies, np.zeros((3, 0), int), copies, ("a",) * 3, "a")
    assert folded_picture(network.graph(), [made_up]) is None
