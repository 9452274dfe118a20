"""The model's graph without a browser: hidden until asked for, linked to the state both ways, and the step in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explorer.model_view import ModelView, graph_picture, step_plan
from remat_explorer.explorer.recording import Recording
from remat_explorer.explorer.scrubber import Scrubber
from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.plan import Compute, Plan
from remat_explorer.solvers import minimum_budget, solve
from remat_explorer.solvers.base import checkpoint_all
from tests.figures.choices import chain_with_choices

PLANS = {
    "recomputed": lambda: rx.solve(rx.linear(8), 4).plan,
    "with choices": lambda: rx.solve(chain_with_choices(), "85%", "monet").plan,
    "everything kept": lambda: Plan.of(checkpoint_all(chain_with_choices())),
}


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


def computations(plan: Plan) -> Iterator[tuple[list[int], list[list[int]]]]:
    """What `step_plan` says of each computation: its five numbers, and its three lists."""
    numbers = step_plan(plan).tolist()
    while numbers:
        head, numbers, lists = numbers[:5], numbers[5:], []
        for _ in range(3):
            lists.append(numbers[1 : 1 + numbers[0]])
            numbers = numbers[1 + numbers[0] :]
        yield head, lists


def replayed(plan: Plan) -> list[int]:
    """Bytes while each computation runs, as the browser adds them up."""
    picture, _ = graph_picture(plan.graph)
    size = {v: value[1] for v, value in enumerate(picture["values"])}
    held, during = picture["resident"], []
    for (_, operation, way, _, overwrites), (stay, drops, frees) in computations(plan):
        held += sum(size[v] for v in stay) - size.get(overwrites, 0)
        during.append(held + sum(size[v] for v in drops) + picture["operations"][operation][7][way])
        held -= sum(size[v] for v in frees)
    return during


@pytest.mark.parametrize("name", PLANS)
def test_what_is_replayed_is_the_predicted_memory_of_every_computation(name: str) -> None:
    plan = PLANS[name]()
    assert plan is not None
    runs = [i for i, statement in enumerate(plan.statements) if isinstance(statement, Compute)]
    assert replayed(plan) == plan.timeline.during[runs].tolist()


def test_computations_that_run_again_are_marked() -> None:
    plan = rx.solve(rx.linear(8), 4).plan
    assert plan is not None
    seen: set[int] = set()
    for (_, operation, _, again, _), _ in computations(plan):
        assert again == (operation in seen)
        seen.add(operation)
    assert len(list(computations(plan))) == len(seen) + 9


def test_a_stage_has_been_computed_to_its_end_and_a_computation_brings_its_stage(state: State) -> None:
    assert state.schedule is not None
    stages = [stage for stage, _, _ in state.schedule.sequence]
    for stage in range(state.schedule.stages):
        state.stage = stage
        assert state.computation == max(i for i, at in enumerate(stages) if at == stage)
    for computation, stage in enumerate(stages):
        state.computation = computation
        assert (state.computation, state.stage) == (computation, stage)


def test_a_computation_outside_is_brought_inside_and_follows_another_schedule(state: State) -> None:
    assert state.schedule is not None
    last = len(state.schedule.sequence) - 1
    state.computation = 1000
    assert (state.computation, state.stage) == (last, 16)
    state.computation = -3
    assert (state.computation, state.stage) == (0, 0)
    state.stage = 12
    state.schedule = rx.solve(state.schedule.graph, 10).schedule
    assert (state.computation, state.stage) == (12, 12)


def test_the_browser_selects_stage_and_computation_together(state: State) -> None:
    state.picture = "model"
    widget = ModelView(state).widget
    state.stage = 12
    first = next(i for i, at in enumerate(stage for stage, *_ in state.schedule.sequence) if at == 13)  # type: ignore[union-attr]
    assert first != widget.computation
    widget.set_state({"stage": 13, "computation": first, "playing": True})
    assert (state.stage, state.computation, state.playing) == (13, first, True)
    assert (widget.stage, widget.computation) == (13, first)


def test_several_changes_at_once_reach_the_browser_and_are_not_taken_back(state: State) -> None:
    state.picture = "model"
    widget = ModelView(state).widget
    with state.at_once():
        state.value, state.stage, state.theme = 5, 9, "dark"
    assert (state.value, state.stage, widget.value, widget.stage, widget.theme) == (5, 9, 5, 9, "dark")


def test_the_plan_on_the_screen_and_that_of_plain_pytorch_are_sent(state: State) -> None:
    state.picture = "model"
    widget = ModelView(state).widget
    assert state.plan is not None
    assert widget.steps == step_plan(state.plan).tobytes()
    assert len(np.frombuffer(widget.plain, "<i4")) == len(step_plan(Plan.of(checkpoint_all(state.plan.graph))))
    state.budget = 6
    assert widget.budget == 6


def test_the_clock_of_stages_rests_while_the_model_is_shown(state: State) -> None:
    bar = Scrubber(state).bar
    state.playing = True
    assert bar.clocked
    state.picture = "model"
    assert (bar.clocked, bar.playing) == (False, True)
    state.picture = "matrices"
    assert bar.clocked


def test_the_live_page_has_the_plans_of_all_points() -> None:
    graph = rx.linear(8)
    frontier = rx.Frontier(graph, tuple(rx.solve(graph, budget) for budget in (4, 10)))
    recording = Recording(frontier, minimum_budget(graph), 10)
    assert recording.overview()["plain"] == step_plan(Plan.of(checkpoint_all(graph))).tolist()
    sent = [point["steps"] for point in recording.points()]
    assert sent == [step_plan(solution.plan).tolist() for solution in frontier.nondominated()]  # type: ignore[arg-type]
