"""The map of memory has every value once for each computation, at its offset and for its lifetime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remat_explorer.errors import ScheduleError
from remat_explorer.figures import memory_map
from remat_explorer.figures.memory_map import KINDS, holdings
from remat_explorer.figures.palette import DARK, LIGHT
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.offsets import place, predict_pool
from remat_explorer.plan import Compute, Plan
from remat_explorer.solvers.base import checkpoint_all


def boxes(figure: Any) -> list[tuple[float, float, float, float]]:
    """Begin, end, lower and upper edge of everything that is drawn, in statements and in the unit of the axis."""
    found = []
    for trace in figure.data[: len(KINDS)]:
        x, y = np.asarray(trace.x).reshape(-1, 6), np.asarray(trace.y).reshape(-1, 6)
        found += zip(x[:, 0], x[:, 1], y[:, 0], y[:, 2], strict=True)
    return found


def test_every_value_is_drawn_once_for_each_computation(tight: Any) -> None:
    plan = Plan.of(tight.schedule)
    figure: Any = memory_map(plan)
    computed = sum(isinstance(statement, Compute) for statement in plan.statements)
    assert len(boxes(figure)) == computed == 17 + 9
    texts = set(figure.data[-1].text)
    assert sum("computed again" in text for text in texts) == 9
    assert sum("computed for the first time" in text for text in texts) == 17


def test_boxes_lie_at_the_offsets_of_the_arena_that_is_given() -> None:
    plan = Plan.of(checkpoint_all(linear(3)))
    arena = place(plan, alignment=4096)
    figure: Any = memory_map(plan, arena)
    assert figure.layout.yaxis.title.text == "offset (KiB)"
    assert sorted(low * 1024 for _, _, low, _ in boxes(figure)) == sorted(arena.offsets.tolist())
    begins = sorted((begin, end) for begin, end, _, _ in boxes(figure))
    assert begins == sorted(zip(arena.rectangles.begin, arena.rectangles.end, strict=True))


def test_no_two_boxes_overlap_and_one_of_each_can_be_pointed_at(tight: Any) -> None:
    plan = Plan.of(tight.schedule)
    figure: Any = memory_map(plan)
    drawn = boxes(figure)
    for i, (begin, end, low, high) in enumerate(drawn):
        for other_begin, other_end, other_low, other_high in drawn[:i]:
            apart = end <= other_begin or other_end <= begin or high <= other_low or other_high <= low
            assert apart
    places = list(zip(figure.data[-1].x, figure.data[-1].y, strict=True))
    for begin, end, low, high in drawn:
        assert any(begin < x < end and low <= y for x, y in places if y < 1.2 * high)


def test_kinds_are_those_of_the_timeline_but_for_what_is_computed_again(tight: Any) -> None:
    plan = Plan.of(tight.schedule)
    figure: Any = memory_map(plan)
    parts, found = holdings(plan), {}
    for trace in figure.data[1 : len(KINDS)]:
        x = np.asarray(trace.x).reshape(-1, 6)
        alive = (x[:, :1] <= parts.statement) & (parts.statement < x[:, 1:2])
        found[trace.name] = alive.sum(axis=0)  # every value of the chain has 1 byte
    assert found["gradients"].tolist() == parts.gradients.tolist()
    forward = found["kept"] + found["temporaries"] + found["recomputed"]
    assert forward.tolist() == (parts.kept + parts.temporaries).tolist()
    again = [statement for statement in plan.statements if isinstance(statement, Compute) and not statement.first]
    assert len(np.asarray(figure.data[KINDS.index("recomputed")].x)) // 6 == len(again) > 0


def test_an_output_that_overwrites_is_drawn_beside_what_it_overwrites() -> None:
    steps = (
        operation("f", "forward", [], [0], 1.0, workspace=4),
        operation("g", "backward", [0], [1], 1.0, overwrites=0),
    )
    graph = Graph("in place", (Value("x", 8), Value("dx", 8)), steps, resident_bytes=16)
    plan = Plan.from_sequence(graph, [(0, 0, 1), (1, 1, 1)])
    figure: Any = memory_map(plan, place(plan, alignment=1))
    drawn = {trace.name: len(np.asarray(trace.x)) // 6 for trace in figure.data[: len(KINDS)]}
    assert drawn == {"resident": 1, "kept": 1, "temporaries": 1, "gradients": 1, "recomputed": 0}
    kept, gradients = figure.data[1], figure.data[3]
    assert kept.y[0] == gradients.y[0]
    assert (kept.x[1], gradients.x[0]) == (1, 1)
    assert "resident bytes" in figure.data[-1].text[0]
    assert any(text.startswith("workspace") for text in figure.data[-1].text)


def test_an_arena_of_another_plan_is_refused() -> None:
    arena = place(Plan.of(checkpoint_all(linear(2))))
    with pytest.raises(ScheduleError, match="5 rectangles, which are not the 7 of the plan of 'linear3'"):
        memory_map(Plan.of(checkpoint_all(linear(3))), arena)


def test_an_empty_plan_is_an_empty_map() -> None:
    figure: Any = memory_map(Plan(linear(1), ()))
    assert [trace.name for trace in figure.data if trace.visible] == []


def test_a_dark_map_has_a_dark_ground(tight: Any) -> None:
    assert memory_map(Plan.of(tight.schedule), theme="dark").layout["paper_bgcolor"] == DARK.ground != LIGHT.ground


def test_a_map_of_thousands_has_few_traces(data: Path) -> None:
    plan = Plan.of(checkpoint_all(Graph.load(str(data / "captured" / "densenet161.json"))))
    figure: Any = memory_map(plan)
    assert len(figure.data) == len(KINDS) + 2
    assert len(boxes(figure)) >= len(predict_pool(plan).rectangles) > 3000
    assert len(figure.data[-1].x) < 10_000
