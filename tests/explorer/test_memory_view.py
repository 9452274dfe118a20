"""The memory map as far as Python makes it: rectangles, names, colours, and one state with everything else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import traitlets as t

import remat_explorer as rx
from remat_explorer.explorer.memory_view import (
    KEEP_EVERYTHING,
    OUTSIDE,
    RESIDENT,
    MemoryView,
    group_layers,
    map_colours,
    map_columns,
    map_lines,
    map_names,
    peak_of_other,
)
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.background_searches import Placer, alignment_of
from remat_explorer.explorer.work.screen import show_schedule
from remat_explorer.figures.palette import DARK, LIGHT
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.offsets import Rectangles, place_at_once
from remat_explorer.operation_details import Details
from remat_explorer.plan import Compute, Plan
from remat_explorer.solvers.base import checkpoint_all
from tests.explorer.driven import driver_of, until
from tests.explorer.panel_tools import measurement


@pytest.fixture
def map_state(state: State) -> State:
    """The eight-layer chain within 4 bytes, with its map on the screen."""
    state.picture = "memory"
    Placer(state)
    return state


@pytest.fixture
def view(map_state: State) -> MemoryView:
    return MemoryView(map_state)


@pytest.fixture(scope="module")
def captured() -> Plan:
    """Resident bytes, workspace, values that are overwritten, recomputations."""
    graph = Graph.load(str(Path(__file__).parents[1] / "data" / "captured" / "unet.json"))
    solution = rx.solve(graph, "90%", strategy="ap-greedy")
    assert solution.plan is not None
    return solution.plan


def unpacked(plan: Plan) -> dict[str, np.ndarray]:
    """The columns of a plan, as the page has them."""
    columns = map_columns(plan, place_at_once(Rectangles.of(plan)))
    found = {name: np.array(column) for name, column in columns.items()}
    found["birth"], found["value"] = found["birth"].cumsum(), found["value"].cumsum()
    return found


def test_rectangles_that_are_there_add_up_to_the_prediction_of_every_computation(captured: Plan, state: State) -> None:
    for plan in (captured, state.plan):
        assert plan is not None
        rectangles = unpacked(plan)
        begin, end = rectangles["birth"], rectangles["birth"] + rectangles["life"]
        computes = [isinstance(statement, Compute) for statement in plan.statements]
        for c, expected in enumerate(plan.timeline.during[computes]):
            assert rectangles["bytes"][(begin <= c) & (c < end)].sum() == expected


def test_no_two_rectangles_overlap_in_time_and_offsets(captured: Plan) -> None:
    found = unpacked(captured)
    rows = list(zip(found["birth"], found["birth"] + found["life"], found["offset"], found["bytes"], strict=True))
    ends = np.array([[begin, end, low, low + size] for begin, end, low, size in rows])
    for i, (begin, end, low, high) in enumerate(ends):
        others = ends[:i]
        together = (others[:, 0] < end) & (begin < others[:, 1]) & (others[:, 2] < high) & (low < others[:, 3])
        assert not together.any()


def test_values_are_there_as_often_as_they_are_computed(state: State) -> None:
    plan: Any = state.plan
    found = unpacked(plan)
    runs = [statement.operation for statement in plan.statements if isinstance(statement, Compute)]
    times = np.bincount(found["value"])  # operation k of the chain writes value k
    assert times.tolist() == np.bincount(runs).tolist()
    assert times.max() > 1


def test_resident_bytes_and_workspace_have_entries_of_their_own() -> None:
    graph = Graph(
        "pair",
        (Value("x", 4), Value("dx", 8, persistent=True)),
        (operation("f", "forward", [], [0], 1.0, 100), operation("g", "backward", [0], [1], 1.0)),
        1000,
    )
    found = unpacked(Plan.of(checkpoint_all(graph)))
    assert sorted(zip(found["value"].tolist(), found["bytes"].tolist(), strict=True)) == [
        (-2, 100),  # workspace of operation 0
        (RESIDENT, 1000),
        (0, 4),
        (1, 8),
    ]


def test_stages_begin_where_their_first_computation_is(state: State) -> None:
    plan: Any = state.plan
    computed = [statement.stage for statement in plan.statements if isinstance(statement, Compute)]
    starts = map_lines(plan)["starts"]
    assert len(starts) == 17 + 1
    assert [computed.index(stage) for stage in range(17)] == starts[:-1]
    assert starts[-1] == len(computed)


def test_what_was_measured_is_there_for_every_computation(view: MemoryView, map_state: State) -> None:
    assert view.widget.lines["measured"] == []
    map_state.measurement = measurement(map_state, more=2)
    plan: Any = map_state.plan
    measured = view.widget.lines["measured"]
    assert len(measured) == view.widget.lines["starts"][-1]
    assert sum(measured) == plan.timeline.during[[isinstance(s, Compute) for s in plan.statements]].sum() + 2


def test_layers_are_grouped_by_the_beginnings_of_their_paths() -> None:
    names = [f"h.{i}.{part}" for i in range(12) for part in ("attn.c_attn", "attn.c_proj", "mlp")]
    groups, of_layer = group_layers(["wte", *names, "head"])
    assert groups == ["wte", *(f"h.{i}" for i in range(12)), "head"]
    assert of_layer == [0, *(1 + i for i in range(12) for _ in range(3)), 13]
    assert group_layers([f"layer{i}" for i in range(40)])[0] == [f"layer{i}" for i in range(40)]
    assert group_layers([]) == ([], [])


def test_operations_outside_of_modules_are_one_group_where_there_are_modules() -> None:
    plain = rx.linear(4)
    described = [
        replace(node, details=Details(module=f"block.{k}" if k < 3 else "")) for k, node in enumerate(plain.operations)
    ]
    names = map_names(replace(plain, operations=tuple(described)))
    assert names["groups"] == ["block.0", "block.1", "block.2", OUTSIDE]
    assert {group for name, group in names["layers"] if name.startswith("v")} == {3}
    assert len(map_names(plain)["groups"]) == plain.n


def test_every_value_belongs_to_the_layer_of_its_operation() -> None:
    graph = rx.linear(3)
    names = map_names(graph)
    for v, (name, size, layer) in enumerate(names["values"]):
        assert (name, size) == (graph.values[v].name, graph.values[v].bytes)
        assert layer == names["operations"][graph.producer[v]][1]
    assert [name for name, _ in names["layers"]] == [node.name for node in graph.operations]


def test_orange_means_computed_again_and_nothing_else() -> None:
    for theme, palette in (("light", LIGHT), ("dark", DARK)):
        colours = map_colours()[theme]
        assert colours["kinds"].count(palette.recompute) == 1
        assert palette.recompute not in colours["layers"]
        assert len(set(colours["layers"])) == 5


def test_nothing_is_placed_or_sent_while_another_picture_is_shown(state: State) -> None:
    placer = Placer(state)
    view = MemoryView(state)
    assert state.arena is None
    assert view.widget.columns == {}
    assert view.widget.layout.display == "none"
    state.picture = "memory"
    assert state.arena is not None
    assert len(view.widget.columns["birth"]) == 26
    assert view.widget.layout.display is None
    state.picture = "model"
    assert state.arena is None
    assert placer.wait(10)


def test_another_schedule_is_placed_before_the_statement_ends(view: MemoryView, map_state: State) -> None:
    before = view.widget.columns
    graph: Any = map_state.graph
    solution = rx.solve(graph, 8)
    show_schedule(map_state, solution.schedule, solution)
    arena: Any = map_state.arena
    assert arena.size == 8
    assert view.widget.columns != before
    assert view.widget.arena["words"] == "one block of 8 B, proven least"


def test_a_placement_that_is_not_the_least_gets_better_in_the_background() -> None:
    graph = Graph.load(str(Path(__file__).parents[1] / "data" / "captured" / "gpt2.json"))
    solution = rx.solve(graph, "80%", strategy="ap-greedy")
    state = State(graph=graph, picture="memory")
    placer = Placer(state)
    state.schedule = solution.schedule
    first: Any = state.arena
    assert first.size == place_at_once(first.rectangles, alignment_of(graph)).size
    assert not first.optimal
    assert until(lambda: state.arena is not None and state.arena.size < first.size)
    assert placer.wait(60)


def test_another_picture_ends_the_search_for_a_placement() -> None:
    graph = Graph.load(str(Path(__file__).parents[1] / "data" / "captured" / "gpt2.json"))
    state = State(graph=graph, picture="memory")
    placer = Placer(state)
    state.schedule = rx.solve(graph, "80%", strategy="ap-greedy").schedule
    state.picture = "matrices"
    assert placer.wait(60)
    assert state.arena is None


def test_cursor_zoom_colours_and_moment_go_both_ways(view: MemoryView, map_state: State) -> None:
    view.widget.stage, view.widget.value, view.widget.zoom = 9, 3, [2, 8, 0, 16]
    assert (map_state.stage, map_state.value, map_state.zoom) == (9, 3, (2, 8, 0, 16))
    view.widget.map_colours, view.widget.moment = "layer", 4
    assert (map_state.map_colours, map_state.moment) == ("layer", 4)
    map_state.stage, map_state.value, map_state.moment = 2, 1, None
    assert (view.widget.stage, view.widget.value, view.widget.moment) == (2, 1, None)
    map_state.picture = "matrices"
    map_state.stage = 5
    assert view.widget.stage == 2  # what is hidden is told when it is shown
    map_state.picture = "memory"
    assert view.widget.stage == 5


def test_the_map_knows_what_is_folded_elsewhere(view: MemoryView, map_state: State) -> None:
    assert view.widget.folded == []
    map_state.fold()
    assert view.widget.folded == [0]


def test_a_moment_is_a_stage_or_the_peaks(view: MemoryView, map_state: State) -> None:
    map_state.moment = 400
    assert map_state.moment == view.widget.moment == 16
    map_state.moment = "peaks"
    for wrong in ("peak", 1.5, True):
        with pytest.raises(t.TraitError, match="is no moment: give a stage, 'peaks', or None"):
            map_state.moment = wrong
    assert map_state.moment == "peaks"


def test_peaks_are_compared_with_the_pinned_schedule_or_with_keeping_everything(
    view: MemoryView, map_state: State
) -> None:
    assert view.widget.other == {}
    map_state.moment = "peaks"
    keep = Plan.of(checkpoint_all(rx.linear(8)))
    assert view.widget.other == peak_of_other(keep, KEEP_EVERYTHING)
    assert view.widget.other["bytes"] == len(view.widget.other["values"]) == 10
    graph: Any = map_state.graph
    map_state.other = rx.solve(graph, 6)
    assert view.widget.other["label"] == "optimal, pinned as B"
    assert view.widget.other["bytes"] == 6
    map_state.moment = None
    assert view.widget.other == {}


def test_a_driver_places_what_it_shows_and_another_model_ends_the_comparison() -> None:
    driver = driver_of(rx.linear(8), 4, picture="memory")
    driver.state.moment = 3
    assert driver.state.arena.size == 4
    driver.load()
    assert driver.wait(60)
    assert driver.state.moment is None
    assert driver.wait_for_sweep(60)
