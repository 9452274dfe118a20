"""The step without a browser: what is sent of a plan, and how stage and computation move together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explorer.model_view import ModelView, graph_picture, step_plan
from remat_explorer.explorer.recording import Recording
from remat_explorer.explorer.scrubber import Scrubber
from remat_explorer.explorer.state.state import State
from remat_explorer.plan import Compute, Plan
from remat_explorer.solvers import minimum_budget
from remat_explorer.solvers.checkpoint_all import checkpoint_all
from tests.figures.choices import chain_with_choices


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


PLANS = {
    "recomputed": lambda: rx.solve(rx.linear(8), 4).plan,
    "with choices": lambda: rx.solve(chain_with_choices(), "85%", "monet").plan,
    "everything kept": lambda: Plan.of(checkpoint_all(chain_with_choices())),
}


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
