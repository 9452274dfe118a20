"""The search: words, passes and sizes, and the way from one found operation to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.errors import QuantityError
from remat_explorer.explorer.scrubber import SearchField
from remat_explorer.explorer.state.navigation import find_operations, next_found
from remat_explorer.explorer.state.state import State


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
