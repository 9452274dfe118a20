"""The model's graph without a browser: hidden until it is asked for, and linked to the state both ways."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remat_explorer.explorer.model_view import ModelView, graph_picture
from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import solve


@pytest.fixture
def state() -> State:
    """The eight-layer chain within 4 units."""
    solution: Any = solve(linear(8), budget=4)
    return State(graph=solution.schedule.graph, schedule=solution.schedule)


def test_nothing_is_sent_before_the_view_is_shown(state: State) -> None:
    view = ModelView(state)
    assert view.widget.layout.display == "none"
    assert (view.widget.picture, view.widget.R, view.widget.S) == ({}, b"", b"")
    state.picture = "model"
    assert not view.widget.layout.display
    assert len(view.widget.picture["operations"]) == 17
    assert view.widget.stages == 17


def test_what_is_sent_of_R_and_S_is_that_of_the_schedule(state: State) -> None:
    state.picture = "model"
    widget, schedule = ModelView(state).widget, state.schedule
    assert schedule is not None
    assert schedule.row_lists() == (widget.R, widget.S)


def test_a_schedule_found_while_hidden_is_shown_later(state: State) -> None:
    state.picture = "model"
    view = ModelView(state)
    sent = view.widget.R
    state.picture = "matrices"
    other: Any = solve(state.graph, budget=10, strategy="checkpoint-all")  # type: ignore[arg-type]
    state.schedule = other.schedule
    assert sent == view.widget.R
    state.picture = "model"
    assert view.widget.R == other.schedule.row_lists()[0] != sent


def test_the_picture_is_laid_out_once_for_a_graph(state: State) -> None:
    state.picture = "model"
    view = ModelView(state)
    sent: list[Any] = []
    view.widget.observe(sent.append, ["picture", "boxes", "R", "S"])
    state.stage, state.value = 3, 2
    state.picture = "matrices"
    state.picture = "model"
    assert sent == []
    assert (view.widget.stage, view.widget.value) == (3, 2)


def test_selection_goes_both_ways(state: State) -> None:
    state.picture = "model"
    view = ModelView(state)
    state.found, state.theme = (1, 4), "dark"
    assert (view.widget.found, view.widget.theme) == ([1, 4], "dark")
    view.widget.value = 5
    view.widget.stage = 11
    assert (state.value, state.stage) == (5, 11)


def test_without_a_graph_the_picture_is_empty(state: State) -> None:
    state.picture = "model"
    view = ModelView(state)
    state.schedule = None
    assert view.widget.stages == 0
    assert view.widget.picture["operations"]
    state.graph = None
    assert view.widget.picture == {}


def test_the_picture_tells_names_costs_and_reads_and_has_a_box_for_each_operation(data: Path) -> None:
    graph = Graph.load(str(data / "captured" / "unet.json"))
    picture, boxes = graph_picture(graph)
    assert len(np.frombuffer(boxes, "<f4")) == 4 * graph.n
    for k, (name, phase, _, share, workspace, reads, writes, workspaces) in enumerate(picture["operations"]):
        assert (name, phase) == (graph.operations[k].name, graph.operations[k].phase)
        assert 0 <= share <= 1
        assert set(reads) == set(graph.inputs(k))
        assert writes == list(graph.outputs(k))
        assert workspaces[0] == workspace == graph.operations[k].default.workspace


def test_moving_the_stage_of_a_large_graph_costs_little_python(data: Path) -> None:
    graph = Graph.load(str(data / "captured" / "densenet161.json"))
    solution: Any = solve(graph, "100%", strategy="checkpoint-all")
    state = State(graph=graph, schedule=solution.schedule, picture="model")
    ModelView(state)
    start = time.thread_time()
    for stage in range(20):
        state.stage = stage
    assert (time.thread_time() - start) / 20 < 0.05  # a hundred times what it takes
