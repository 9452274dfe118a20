"""Operations stand in order on their rails, apart from each other, and near those that they belong to."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from remat_explorer.figures.snake import SnakeLayout, arc, extent, kept_share, snake_layout, snake_picture, turns
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear


@pytest.fixture(params=["vgg16", "unet", "gpt2", "densenet161"])
def captured(request: pytest.FixtureRequest, data: Path) -> Graph:
    return Graph.load(str(data / "captured" / f"{request.param}.json"))


def along(layout: SnakeLayout) -> np.ndarray:
    """How far along the snake the centre of each operation is, in columns."""
    x = layout.positions[:, 0]
    return layout.row * layout.columns + np.where(layout.row % 2 == 0, x, layout.columns - x)


def test_forward_runs_along_the_snake_and_backward_comes_back(captured: Graph) -> None:
    layout = snake_layout(captured)
    way, backward = along(layout), captured.is_backward
    assert (np.diff(way[~backward]) > 0).all()
    assert (np.diff(way[backward]) < 0).all()


def test_operations_stand_inside_the_rows_and_never_on_each_other(captured: Graph) -> None:
    layout = snake_layout(captured)
    taken = np.zeros((layout.rows, 2, layout.columns), dtype=int)
    for row, rail, left, width in zip(layout.row, layout.rail, layout.left, layout.width, strict=True):
        assert left >= 0
        assert left + width <= layout.columns
        taken[row, rail, int(left) : int(left + width)] += 1
    assert taken.max() == 1


def test_backward_operations_stand_under_the_forward_operation_whose_result_they_read(captured: Graph) -> None:
    layout = snake_layout(captured)
    left, right = layout.left, layout.left + layout.width
    under = layout.belongs
    assert (left >= left[under]).all()
    assert (right <= right[under]).all()
    assert (layout.row == layout.row[under]).all()
    producer, forward = captured.producer, ~captured.is_backward
    reads = {k: {int(producer[v]) for v in captured.inputs(k) if forward[producer[v]]} for k in range(captured.n)}
    knowing = [k for k in np.flatnonzero(captured.is_backward).tolist() if reads[k]]
    assert sum(int(under[k]) == max(reads[k]) for k in knowing) > 0.6 * len(knowing)


def test_one_operation_that_reads_an_early_value_does_not_pull_the_others_with_it() -> None:
    chain = linear(6)
    sizes = [Value(f"v{k}", 1) for k in range(chain.n)]
    reads = [node.default.inputs for node in chain.operations]
    strange = 8  # the second backward operation, which now reads the first activation alone
    reads[strange] = (0,)
    nodes = [operation(f"o{k}", node.phase, reads[k], [k], 1.0) for k, node in enumerate(chain.operations)]
    plain, odd = snake_layout(chain), snake_layout(Graph("odd", tuple(sizes), tuple(nodes)))
    others = np.arange(chain.n) != strange
    assert (plain.belongs[others] == odd.belongs[others]).all()


def test_columns_are_obeyed_and_never_less_than_the_widest_slot() -> None:
    assert snake_layout(linear(12), columns=5).columns == 5
    layout = snake_layout(Graph("wide", (Value("x", 1), Value("a", 1), Value("b", 1)), _fan()), columns=1)
    assert (layout.columns, layout.rows) == (2, 1)


def _fan():
    return (
        operation("f", "forward", [], [0], 1.0),
        operation("g", "backward", [0], [1], 1.0),
        operation("h", "backward", [0], [2], 1.0),
    )


def test_a_higher_picture_has_more_rows() -> None:
    graph = linear(60)
    assert snake_layout(graph, aspect=1.0).rows > snake_layout(graph, aspect=4.5).rows


def test_chains_have_no_arcs_and_the_skips_of_a_residual_block_are_drawn() -> None:
    assert len(snake_layout(linear(9)).skips) == 0
    block = Graph(
        "block",
        tuple(Value(name, 1) for name in "abcd"),
        (
            operation("in", "forward", [], [0], 1.0),
            operation("conv1", "forward", [0], [1], 1.0),
            operation("conv2", "forward", [1], [2], 1.0),
            operation("add", "forward", [0, 2], [3], 1.0),
        ),
    )
    layout = snake_layout(block)
    assert layout.skips.tolist() == [[0, 3]]
    picture = snake_picture(block, layout)
    curve = arc(picture, 0, 3)
    assert curve[0, 0] == picture.boxes[0, [0, 2]].mean()
    assert curve[3, 0] == picture.boxes[3, [0, 2]].mean()
    middle = (np.array([1, 3, 3, 1]) / 8) @ curve
    assert 0 <= middle[1] < picture.boxes[1:3, 1].min()  # inside the row, above what it passes over


def test_layouts_are_quick(data: Path) -> None:
    for name, most in (("resnet50", 0.05), ("densenet161", 0.2)):  # ten times what it takes
        graph = Graph.load(str(data / "captured" / f"{name}.json"))
        start = time.thread_time()
        snake_layout(graph)
        assert time.thread_time() - start < most


def test_boxes_rise_and_hang_with_their_bytes(captured: Graph) -> None:
    layout = snake_layout(captured)
    picture = snake_picture(captured, layout)
    _, top, _, bottom = picture.boxes.T
    forward = ~captured.is_backward
    assert np.allclose(bottom[forward], layout.row[forward] + picture.lanes[1])
    assert np.allclose(top[~forward], layout.row[~forward] + picture.lanes[2])
    written = np.array([captured.value_bytes[list(node.default.outputs)].sum() for node in captured.operations])
    for rail in (forward, ~forward):
        order = np.argsort(written[rail], kind="stable")
        assert (np.diff((bottom - top)[rail][order]) >= -1e-12).all()


def test_names_fit_into_their_slots_and_do_not_overlap() -> None:
    graph = linear(40)
    picture = snake_picture(graph, snake_layout(graph), width=600)
    assert {label.text for label in picture.labels} <= {node.name for node in graph.operations}
    for line in range(2):
        for row in range(picture.layout.rows):
            spans = sorted(
                (label.left, label.right) for label in picture.labels if (label.row, label.line) == (row, line)
            )
            assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_rails_turn_at_the_ends_of_the_rows() -> None:
    graph = linear(40)
    picture = snake_picture(graph, snake_layout(graph, columns=9))
    bends = turns(picture, 0.5)
    assert len(bends) == 2 * (picture.layout.rows - 1) + 1
    rail, first = bends[0]
    assert (rail, first[0].tolist()) == (0, [9, picture.lanes[1]])
    assert first[3, 1] - first[0, 1] == 1
    assert extent(picture, 0) == (0, 9)


def test_kept_share_counts_bytes() -> None:
    graph = Graph("pair", (Value("x", 30), Value("mask", 10)), (operation("f", "forward", [], [0, 1], 1.0),))
    assert kept_share(graph, np.array([False, True])).tolist() == [0.25]
