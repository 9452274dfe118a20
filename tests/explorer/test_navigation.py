"""Words and sizes that find operations, and repeated blocks that are folded, without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import traitlets

import remat_explorer as rx
from remat_explorer.errors import QuantityError
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.model_view import ModelView, graph_layout
from remat_explorer.explorer.recording import Recording
from remat_explorer.explorer.scrubber import SearchField
from remat_explorer.explorer.state.navigation import MIN_FOLDED_OPERATIONS, find_operations, next_found
from remat_explorer.explorer.state.state import State
from remat_explorer.figures.model_graph import folded_picture
from remat_explorer.graph.repeated_blocks import RepeatedBlocks
from remat_explorer.instances import linear
from remat_explorer.solvers import Frontier, minimum_budget, solve
from remat_explorer.solvers.base import checkpoint_all
from tests.core.repeated_graphs import Network, transformer

MANY_LAYERS = 13  # 421 operations


@pytest.fixture(scope="module")
def network(data: Path) -> rx.Graph:
    return rx.Graph.load(str(data / "captured" / "vgg16.json"))


def largest(graph: rx.Graph, k: int) -> int:
    return max(graph.values[v].bytes for v in graph.outputs(k))


def test_every_word_must_match(network: rx.Graph) -> None:
    found = find_operations(network, "CONV backward >10MiB")
    assert found == tuple(
        k
        for k, node in enumerate(network.operations)
        if "conv" in node.name and node.phase == "backward" and largest(network, k) > 10 * 2**20
    )
    assert (
        0
        < len(found)
        < len(find_operations(network, "conv backward"))
        < len(find_operations(network, "backward"))
        < network.n
    )


def test_sizes_may_be_written_apart_and_be_combined(network: rx.Graph) -> None:
    assert find_operations(network, "> 10 MiB conv") == find_operations(network, "conv >10MiB")
    between = find_operations(network, ">=1MiB <= 64 MiB")
    assert between
    assert all(2**20 <= largest(network, k) <= 2**26 for k in between)


def test_a_value_is_found_by_the_operation_that_writes_it(network: rx.Graph) -> None:
    for name in {value.name for value in network.values[:6]}:
        v = next(v for v, value in enumerate(network.values) if value.name == name)
        assert network.producer[v] in find_operations(network, name)


def test_no_words_find_nothing_and_no_size_is_an_error(network: rx.Graph) -> None:
    assert find_operations(network, "  ") == find_operations(network, "there_is_none") == ()
    for words in (">", "conv >much"):
        with pytest.raises(QuantityError):
            find_operations(network, words)
    assert find_operations(network, "< 10 apples") == ()  # ten bytes, and a word that no operation has


def test_next_and_previous_go_round() -> None:
    found = (2, 5, 11)
    forward, at = [], 4
    for _ in range(4):
        at = next_found(found, at, 1)
        assert at is not None
        forward.append(at)
    assert forward == [5, 11, 2, 5]
    assert [next_found(found, k, -1) for k in (0, 2, 4, 11)] == [11, 11, 2, 5]


def test_the_state_finds_what_is_searched_for_in_the_graph_of_the_moment(network: rx.Graph) -> None:
    state = State(graph=network)
    state.search = "conv"
    assert state.found == find_operations(network, "conv")
    state.graph = rx.linear(4)
    assert state.found == ()
    state.search = "v1"
    assert state.found == (1,)
    state.search = "v1 >"
    assert state.found == ()


def test_choosing_a_found_operation_selects_what_it_writes_and_where_it_first_runs() -> None:
    solution: Any = rx.solve(rx.linear(8), budget=4)
    state: Any = State(graph=solution.graph, schedule=solution.schedule, search="backward")
    for k in state.found:
        state.select_found()
        assert solution.graph.producer[state.value] == k
        assert state.stage == solution.schedule.R[:, k].argmax()
    state.select_found(-1)
    assert solution.graph.producer[state.value] == state.found[-2]


def test_field_counter_and_buttons_follow_the_search() -> None:
    solution: Any = rx.solve(rx.linear(4), budget="100%", strategy="checkpoint-all")
    state = State(graph=solution.graph, schedule=solution.schedule)
    view = SearchField(state)
    assert view.next.disabled
    view.field.value = "backward"
    assert state.search == "backward"
    assert ">5 found<" in view.counter.value
    view.next.click()
    assert ">1 of 5<" in view.counter.value
    view.field._handle_custom_msg({"event": "submit"}, [])  # Enter
    assert ">2 of 5<" in view.counter.value
    view.previous.click()
    view.previous.click()
    assert ">5 of 5<" in view.counter.value
    view.field.value = "<nothing"
    assert ">no size<" in view.counter.value
    assert "<nothing" not in view.counter.value  # escaped in the tooltip
    assert view.next.disabled
    state.search = ""
    assert view.field.value == ""


@pytest.fixture(scope="module")
def large():
    graph = transformer(MANY_LAYERS)
    assert graph.n >= MIN_FOLDED_OPERATIONS
    return graph


def showing(graph) -> tuple[State, MatrixView]:
    state = State(graph=graph)
    state.schedule = checkpoint_all(graph)
    return state, MatrixView(state)


def test_a_large_graph_is_folded_at_first_and_a_small_one_is_not(large):
    assert State(graph=large).folded == (0,)
    assert State(graph=transformer(4)).folded == ()
    assert State(graph=transformer(4)).blocks[0].copies == 4


def test_the_page_gets_the_blocks_and_folds_and_unfolds_them(large):
    state, view = showing(large)
    assert [block["label"] for block in view.widget.blocks] == [f"blocks.0–{MANY_LAYERS - 1}"]
    assert view.widget.blocks[0]["short"][3] == "3"
    assert view.widget.folded == [0]
    view.widget.folded = []  # as a click does
    assert state.folded == ()
    state.fold()
    assert view.widget.folded == [0]
    state.unfold(0)
    assert view.widget.folded == []


def test_another_graph_is_folded_anew(large):
    state, view = showing(large)
    state.unfold()
    state.graph = transformer(4)
    assert state.folded == ()
    state.graph = large
    assert state.folded == (0,)
    assert view.widget.folded == [0]


def test_what_is_no_block_is_refused_and_quoted():
    state = State(graph=linear(8))
    with pytest.raises(traitlets.TraitError, match=r"\(1,\) are no repeated blocks; there are numbers from 0 to 0"):
        state.folded = (1,)
    with pytest.raises(traitlets.TraitError, match="none, as this graph repeats no block"):
        State().folded = (0,)


def test_what_is_folded_away_is_where_the_first_copy_is(large):
    state, _ = showing(large)
    (blocks,) = state.blocks
    assert state.operation_shown(int(blocks.forward[7, 3])) == blocks.forward[0, 3]
    assert state.stage_shown(int(blocks.backward[7, 5])) == blocks.backward[0, 5]
    assert state.operation_shown(0) == 0  # of no block


def test_a_part_of_the_folded_matrices_stays_where_the_cursor_goes_through_the_copies(large):
    state, _ = showing(large)
    (blocks,) = state.blocks
    first, last = int(blocks.forward[0, 0]), int(blocks.forward[0, -1])
    state.zoom = (first, last, first, last)
    for copy in range(blocks.copies):
        state.stage = int(blocks.forward[copy, 4])
    assert state.zoom == (first, last, first, last)


def test_the_live_page_begins_as_the_explorer_does():
    graph = transformer(3)
    curve = Frontier(graph, (solve(graph, "100%", "checkpoint-all"),))
    traits = Recording(curve, minimum_budget(graph), 1).overview()["matrices"]
    assert [block["label"] for block in traits["blocks"]] == ["blocks.0–2"]
    assert traits["folded"] == []


def test_the_model_has_one_box_on_each_rail_for_all_copies(large):
    (blocks,) = State(graph=large).blocks
    layout, packed = graph_layout(large, (0,))
    boxes = np.frombuffer(packed, "<f4").reshape(-1, 4)
    for operations in (blocks.forward, blocks.backward):
        assert len(np.unique(boxes[operations.ravel()], axis=0)) == 1
    assert len(np.unique(boxes, axis=0)) == large.n - 32 * MANY_LAYERS + 2
    assert layout["folded"] == [0]
    assert layout["blocks"][0][:2] == [f"blocks.0–{MANY_LAYERS - 1}", MANY_LAYERS]
    _, unfolded = graph_layout(large)
    assert len(np.unique(np.frombuffer(unfolded, "<f4").reshape(-1, 4), axis=0)) == large.n


def test_a_block_that_something_outside_runs_between_is_not_folded_in_the_model():
    network = Network("probed")
    y = network.add("entry", (), 1, 1)
    probes = []
    for number in range(4):
        y = network.add(f"layer{number}", (y,), 1, 1)
        if number == 1:
            probes.append(network.add("probe", (y,), 9, 1))
            y = network.add("joined", (y, probes[0]), 9, 1)
    graph = network.graph()
    made_up = RepeatedBlocks(
        np.array([[1], [2], [5]]), np.zeros((3, 0), int), np.array([[1], [2], [5]]), ("a",) * 3, "a"
    )
    assert folded_picture(graph, [made_up]) is None


def test_the_model_view_folds_and_unfolds_with_the_state(large):
    state = State(graph=large, picture="model")
    state.schedule = checkpoint_all(large)
    view = ModelView(state)
    assert view.widget.picture["folded"] == [0]
    columns = view.widget.picture["columns"]
    view.widget.folded = []  # as a click does
    assert state.folded == ()
    assert view.widget.picture["folded"] == []
    assert view.widget.picture["columns"] > columns
    state.fold()
    assert view.widget.folded == view.widget.picture["folded"] == [0]
