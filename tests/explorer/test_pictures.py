"""The memory map and the model's graph as far as Python makes them, and one state with everything else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import traitlets as t

import remat_explorer as rx
from remat_explorer.explorer import State, model_view
from remat_explorer.explorer.controllers import background_searches
from remat_explorer.explorer.controllers.background_searches import Placer, alignment_of
from remat_explorer.explorer.controllers.screen import show_schedule, show_sending
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.memory_view import (
    KEEP_EVERYTHING,
    OUTSIDE,
    RESIDENT,
    MemoryView,
    group_layers,
    map_columns,
    map_lines,
    map_names,
    peak_of_other,
)
from remat_explorer.explorer.model_view import ModelView, graph_picture, step_plan
from remat_explorer.figures import KINDS, journeys_of, waits_of
from remat_explorer.offload import TransferPlan
from remat_explorer.offsets import Rectangles, place_at_once
from remat_explorer.operation_details import Details
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all
from tests.explorer.driven import captured, driver_of, measurement, runs_of, settled, until
from tests.figures.choices import chain_with_choices


@pytest.fixture
def mapped(state: State) -> Any:
    state.picture = "memory"
    Placer(state)
    return state


@pytest.fixture
def view(mapped: State) -> MemoryView:
    return MemoryView(mapped)


def unpacked(plan: Plan) -> dict[str, np.ndarray]:
    columns = map_columns(plan, place_at_once(Rectangles.of(plan)))
    found = {name: np.array(column) for name, column in columns.items()}
    found["birth"], found["value"] = found["birth"].cumsum(), found["value"].cumsum()
    return found


def test_rectangles_add_up_to_the_prediction_of_every_computation_and_never_overlap(state: State) -> None:
    unet: Any = rx.solve(captured("unet"), "90%", strategy="ap-greedy").plan  # with resident bytes and workspace
    plans: list[Any] = [unet, state.plan]
    for plan in plans:
        found = unpacked(plan)
        assert (RESIDENT in found["value"]) == (plan is unet)
        begin, end = found["birth"], found["birth"] + found["life"]
        for c, expected in enumerate(plan.timeline.during[runs_of(plan)]):
            assert found["bytes"][(begin <= c) & (c < end)].sum() == expected
        low, high = found["offset"], found["offset"] + found["bytes"]
        for i in range(len(low)):
            together = (begin[:i] < end[i]) & (begin[i] < end[:i]) & (low[:i] < high[i]) & (low[i] < high[:i])
            assert not together.any()
    computed = [plan.statements[i] for i in runs_of(plan)]
    times = np.bincount(found["value"])  # operation k of the chain writes value k
    assert times.tolist() == np.bincount([run.operation for run in computed]).tolist()
    stages = [run.stage for run in computed]
    assert map_lines(plan)["starts"] == [*(stages.index(stage) for stage in range(17)), len(computed)]


def test_what_was_measured_is_there_for_every_computation(view: MemoryView, mapped: Any) -> None:
    assert view.widget.lines["measured"] == []
    mapped.measurement = measurement(mapped, more=2)
    measured = view.widget.lines["measured"]
    assert len(measured) == view.widget.lines["starts"][-1]
    assert sum(measured) == mapped.plan.timeline.during[runs_of(mapped.plan)].sum() + 2


def test_every_value_belongs_to_the_layer_of_its_operation_and_what_is_outside_of_modules_is_one_group() -> None:
    plain, paths = rx.linear(16), [f"h.{k // 3}.{('attn.c_attn', 'attn.c_proj', 'mlp')[k % 3]}" for k in range(30)]
    described = [
        replace(node, details=Details(module=path))
        for node, path in zip(plain.operations, [*paths, "", "", ""], strict=True)
    ]
    names = map_names(replace(plain, operations=tuple(described)))
    assert names["groups"] == [*(f"h.{i}" for i in range(10)), OUTSIDE]
    assert {group for name, group in names["layers"] if name.startswith("v")} == {10}
    for v, (name, size, layer) in enumerate(names["values"]):
        assert (name, size) == (plain.values[v].name, plain.values[v].bytes)
        assert layer == names["operations"][plain.producer[v]][1]
    assert group_layers([f"layer{i}" for i in range(40)])[0] == [f"layer{i}" for i in range(40)]


def test_nothing_is_placed_or_sent_while_another_picture_is_shown(state: State) -> None:
    placer = Placer(state)
    views: tuple[Any, ...] = (MatrixView, MemoryView, ModelView)
    matrices, memory, model = (view(state).widget for view in views)
    for picture in ("matrices", "memory", "model", "overview", "matrices"):
        state.picture = picture
        for name, widget in (("matrices", matrices), ("memory", memory), ("model", model)):
            both = picture == "overview" and name != "model"  # side by side, in little room
            assert (widget.layout.display == "none") == (name != picture and not both)
            assert name == "model" or widget.compact == both
        assert (state.arena is not None) == (picture in ("memory", "overview"))
        if picture == "matrices" and not memory.columns:  # neither has been shown
            assert (model.picture, model.R, model.S) == ({}, b"", b"")
    assert len(memory.columns["birth"]) == 26
    assert (len(model.picture["operations"]), model.stages) == (17, 17)
    assert placer.wait(60)


def test_a_placement_that_is_not_the_least_gets_better_until_another_picture_ends_its_search(monkeypatch: Any) -> None:
    monkeypatch.setattr(background_searches, "_PLACE_SECONDS", 600.0)
    graph = captured("gpt2")
    state = State(graph=graph, picture="memory")
    placer = Placer(state)
    state.schedule = rx.solve(graph, "80%", strategy="ap-greedy").schedule
    first: Any = state.arena
    assert first.size == place_at_once(first.rectangles, alignment_of(graph)).size
    assert not first.optimal
    assert until(lambda: state.arena is not None and state.arena.size < first.size)
    state.picture = "matrices"
    assert placer.wait(60)
    assert state.arena is None


def test_cursor_zoom_colours_and_moment_go_both_ways(view: MemoryView, mapped: Any) -> None:
    widget = view.widget
    widget.stage, widget.value, widget.zoom = 9, 3, [2, 8, 0, 16]
    assert (mapped.stage, mapped.value, mapped.zoom) == (9, 3, (2, 8, 0, 16))
    widget.map_colours, widget.moment = "layer", 4
    assert (mapped.map_colours, mapped.moment) == ("layer", 4)
    mapped.stage, mapped.value, mapped.moment = 2, 1, None
    assert (widget.stage, widget.value, widget.moment) == (2, 1, None)
    mapped.picture = "matrices"
    mapped.stage = 5
    assert widget.stage == 2  # what is hidden is told when it is shown
    mapped.picture = "memory"
    assert widget.stage == 5


def test_a_moment_is_a_stage_or_the_peaks_which_are_compared_with_what_is_pinned(view: MemoryView, mapped: Any) -> None:
    mapped.moment = 400
    assert mapped.moment == view.widget.moment == 16
    assert view.widget.other == {}
    mapped.moment = "peaks"
    for wrong in ("peak", 1.5, True):
        with pytest.raises(t.TraitError, match="is no moment: give a stage, 'peaks', or None"):
            mapped.moment = wrong
    assert mapped.moment == "peaks"
    assert view.widget.other == peak_of_other(Plan.of(checkpoint_all(rx.linear(8))), KEEP_EVERYTHING)
    assert view.widget.other["bytes"] == len(view.widget.other["values"]) == 10
    mapped.other = rx.solve(mapped.graph, 6)
    assert (view.widget.other["label"], view.widget.other["bytes"]) == ("optimal, pinned as B", 6)
    mapped.moment = None
    assert view.widget.other == {}


def test_a_driver_places_what_it_shows_at_once_and_another_model_ends_the_comparison() -> None:
    driver = driver_of(rx.linear(8), 4, picture="memory")
    view = MemoryView(driver.state)
    driver.state.moment = 3
    assert driver.state.arena.size == 4
    before = view.widget.columns
    solution = rx.solve(driver.state.graph, 8)
    show_schedule(driver.state, solution.schedule, solution)
    assert driver.state.arena.size == 8
    assert view.widget.columns != before
    assert view.widget.arena["words"] == "one block of 8 B, proven least"
    driver.load()
    assert settled(driver).state.moment is None
    assert driver.wait_for_sweep(60)


def test_the_schedule_on_the_screen_and_the_plan_of_plain_pytorch_are_sent(state: Any) -> None:
    state.picture = "model"
    widget: Any = ModelView(state).widget
    sent = state.schedule.row_lists()
    assert sent == (widget.R, widget.S)
    assert widget.steps == step_plan(state.plan).tobytes()
    assert len(np.frombuffer(widget.plain, "<i4")) == len(step_plan(Plan.of(checkpoint_all(state.graph))))
    state.picture = "matrices"
    state.schedule = other = checkpoint_all(state.graph)
    assert sent[0] == widget.R
    state.picture = "model"
    assert widget.R == other.row_lists()[0] != sent[0]
    state.schedule = None
    assert widget.stages == 0
    assert widget.picture["operations"]
    state.graph = None
    assert widget.picture == {}


def test_nothing_is_laid_out_anew_while_the_cursor_moves(state: Any, monkeypatch: Any) -> None:
    state.picture = "model"
    widget: Any = ModelView(state).widget
    for made in ("graph_picture", "graph_layout", "step_plan"):
        monkeypatch.setattr(model_view, made, lambda *given: pytest.fail("made anew"))
    sent: list[Any] = []
    widget.observe(sent.append, ["picture", "boxes", "R", "S", "steps", "plain"])
    state.stage, state.value, state.found, state.theme = 3, 2, (1, 4), "dark"
    state.picture = "matrices"
    state.picture = "model"
    assert sent == []
    assert (widget.stage, widget.value) == (3, 2)
    assert (widget.found, widget.theme) == ([1, 4], "dark")


def computations(plan: Plan) -> Iterator[tuple[list[int], list[list[int]]]]:
    """What `step_plan` says of each computation: its five numbers, and its three lists."""
    numbers = step_plan(plan).tolist()
    while numbers:
        head, numbers, lists = numbers[:5], numbers[5:], []
        for _ in range(3):
            lists.append(numbers[1 : 1 + numbers[0]])
            numbers = numbers[1 + numbers[0] :]
        yield head, lists


@pytest.mark.parametrize(
    "schedule",
    [
        lambda: rx.solve(rx.linear(8), 4).schedule,
        lambda: rx.solve(chain_with_choices(), "85%", "monet").schedule,
        lambda: rx.solve(captured("unet"), "90%", "ap-greedy").schedule,
    ],
    ids=["recomputed", "with choices", "overwriting"],
)
def test_what_is_replayed_is_the_predicted_memory_and_what_runs_again_is_marked(schedule: Any) -> None:
    plan = Plan.of(schedule())
    picture, _ = graph_picture(plan.graph)
    size = {v: value[1] for v, value in enumerate(picture["values"])}
    held, during, seen = picture["resident"], [], set()
    for (_, run, way, again, overwrites), (stay, drops, frees) in computations(plan):
        held += sum(size[v] for v in stay) - size.get(overwrites, 0)
        during.append(held + sum(size[v] for v in drops) + picture["operations"][run][7][way])
        held -= sum(size[v] for v in frees)
        assert again == (run in seen)
        seen.add(run)
    assert during == plan.timeline.during[runs_of(plan)].tolist()


def test_stage_and_computation_follow_each_other_and_stay_inside(state: Any) -> None:
    stages = [stage for stage, _, _ in state.schedule.sequence]
    for stage in range(state.schedule.stages):
        state.stage = stage
        assert state.computation == max(i for i, at in enumerate(stages) if at == stage)
    for computation, stage in enumerate(stages):
        state.computation = computation
        assert (state.computation, state.stage) == (computation, stage)
    state.computation = 1000
    assert (state.computation, state.stage) == (len(stages) - 1, 16)
    state.computation = -3
    assert (state.computation, state.stage) == (0, 0)
    state.stage = 12
    state.schedule = rx.solve(state.graph, 10).schedule
    assert (state.computation, state.stage) == (12, 12)


@pytest.mark.parametrize(("make", "picture"), [(MatrixView, "matrices"), (MemoryView, "memory"), (ModelView, "model")])
def test_a_message_of_the_page_is_taken_whole(keep: rx.Solution, make: Any, picture: str) -> None:
    state = State(graph=keep.graph, schedule=keep.schedule, picture=picture)
    widget = make(state).widget
    heard: list[tuple[str, Any]] = []
    state.observe(lambda change: heard.append(("value then", state.value)), "stage")
    widget.observe(lambda change: heard.append((change["name"], change["new"])), ["stage", "value"])
    widget.set_state({"stage": 5, "value": 3} | ({"computation": 5} if picture == "model" else {}))
    assert (state.stage, state.value, widget.stage, widget.value) == (5, 3, 5, 3)
    assert sorted(heard) == [("stage", 5), ("value", 3), ("value then", 3)]
    widget.set_state({"stage": 99, "value": 4})  # what the state does not take is given back
    assert (state.stage, widget.stage, widget.value) == (16, 16, 4)


@pytest.fixture(scope="module")
def sending() -> rx.TransferSolution:
    """The eight-layer chain within 4 bytes, at one byte a unit of cost: values travel, and some run twice at less."""
    return rx.solve(rx.linear(8), 4, strategy="offload", transfers=rx.Transfers(1.0, 1.0), time_limit=10)


def test_a_value_that_travels_leaves_the_map_and_is_back_in_a_colour_of_its_own(sending: Any) -> None:
    state: Any = State(graph=sending.graph, budget=4, checkpoint_all_peak=10, picture="memory")
    Placer(state)
    map_view: Any = MemoryView(state)
    show_sending(state, sending)
    plan, columns, lanes = sending.plan, map_view.widget.columns, map_view.widget.lanes
    births = np.cumsum(columns["birth"])
    ends, values = births + columns["life"], np.cumsum(columns["value"])
    runs = runs_of(plan)
    heights = [int(np.array(columns["bytes"])[(births <= c) & (c < ends)].sum()) for c in range(len(runs))]
    assert all(0 <= plan.timeline.during[run] - height <= 1 for run, height in zip(runs, heights, strict=True))
    assert max(heights) == plan.peak == 4
    fetched = [v for v, kind in zip(values.tolist(), columns["kind"], strict=True) if KINDS[kind] == "fetched"]
    assert sorted(fetched) == sorted(journey.value for journey in journeys_of(plan))
    assert [len(engine["busy"]) for engine in lanes["engines"]] == [len(set(fetched)), len(fetched)]
    assert max(lanes["host"]) == plan.host_peak
    assert bool(lanes["waits"]) == (plan.makespan > plan.computing)
    slow = TransferPlan(plan.graph, rx.Transfers(0.1, 0.1), plan.statements)
    waited = sum(seconds for _, seconds in waits_of(slow))
    assert waited == pytest.approx(slow.makespan - slow.computing)
    show_schedule(state, checkpoint_all(state.graph), None)
    assert map_view.widget.lanes == {}


def test_the_model_and_the_matrices_have_the_bytes_of_a_plan_that_sends(sending: Any) -> None:
    plan = sending.plan
    numbers, held, highest, at = step_plan(plan).tolist(), 0, 0, 0
    while at < len(numbers):
        overwrites, at = numbers[at + 4], at + 5
        lists = []
        for _ in range(3):
            lists.append(numbers[at + 1 : at + 1 + numbers[at]])
            at += 1 + numbers[at]
        held += len(lists[0]) - (overwrites >= 0)
        highest = max(highest, held + len(lists[1]))
        held -= len(lists[2])
    assert highest == plan.peak
    state: Any = State(graph=sending.graph, budget=4)
    matrices: Any = MatrixView(state)
    show_sending(state, sending)
    assert matrices.widget.largest == plan.peak
    assert matrices.widget.journeys == [[j.value, j.sent, j.freed, j.fetched] for j in journeys_of(plan)]
