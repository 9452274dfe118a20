"""Figures of schedules: R, S and U, compared, which implementations run, and the model's picture."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remat_explorer.capture_options import KINDS
from remat_explorer.errors import GraphError, ScheduleError
from remat_explorer.explanations.choices import kinds_in
from remat_explorer.figures import (
    compare,
    computation_matrices,
    difference,
    memory_heatmap,
    model_graph,
    schedule_heatmap,
)
from remat_explorer.figures import implementation_images as pictures
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.convolution_algorithms import convolution_algorithms, is_convolution, parts_of
from remat_explorer.figures.implementation_images import (
    Use,
    implementation_colours,
    implementation_images,
    implementations_used,
    kinds_run,
)
from remat_explorer.figures.schedule_heatmap import (
    BACKWARD,
    BOTH,
    EMPTY,
    FIRST,
    FORWARD,
    NEITHER,
    RECOMPUTE,
    SECOND,
    computation_kinds,
    memory_in_stages,
)
from remat_explorer.figures.schedule_images import MARKS, PIXELS, legend_squares
from remat_explorer.figures.snake import SnakeLayout, arc, kept_share, snake_layout, snake_picture
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, solve
from tests.figures.choices import chain_with_choices


def test_schedule_heatmap_holds_R_and_S_and_names_its_colours(tight: Any) -> None:
    figure: Any = schedule_heatmap(tight.schedule)
    kinds = computation_kinds(tight.schedule)
    assert [(kinds == kind).sum() for kind in (FORWARD, BACKWARD, RECOMPUTE)] == [8, 9, 9]
    assert ((kinds == EMPTY) == (tight.schedule.R == 0)).all()
    assert (np.asarray(figure.data[0].z) == kinds).all()
    assert (np.asarray(figure.data[1].z) == tight.schedule.S).all()
    assert [trace.name for trace in figure.data[2:]] == ["forward", "backward", "recompute", "kept"]
    assert (figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text) == ("operation", "value")


def test_memory_heatmap_peaks_at_the_largest_U(tight: Any) -> None:
    figure: Any = memory_heatmap(tight.schedule)
    assert np.nanmax(figure.data[0].z) == tight.schedule.U.max()
    assert np.isnan(figure.data[0].z[0][5])  # stage 0 computes operation 0 only
    assert memory_in_stages(tight.schedule).mask.sum() == 17 * 16 / 2
    assert [ByteAxis.up_to(count).unit for count in (17, 5e3, 3e6, 2**31)] == ["bytes", "KiB", "MiB", "GiB"]


def test_every_panel_shows_what_its_schedule_computes(tight: Any) -> None:
    figure: Any = computation_matrices([checkpoint_all(tight.graph), tight.schedule], ["kept", "tight"])
    kept, shown = (trace for trace in figure.data if trace.type == "heatmap")
    assert np.array_equal(kept.z > 0, np.eye(17, dtype=bool))
    assert np.array_equal(shown.z > 0, tight.schedule.R > 0)
    assert [note.text for note in figure.layout.annotations] == ["kept", "tight"]
    with pytest.raises(ScheduleError, match="1 schedules and 2 titles"):
        computation_matrices([tight.schedule], ["a", "b"])


@pytest.fixture(scope="module")
def loose() -> Any:
    return solve(linear(8), budget=8)


def test_every_cell_is_told_apart(tight: Any, loose: Any) -> None:
    cells = difference(tight.schedule, loose.schedule)
    for found, first, second in (
        (cells.R, tight.schedule.R > 0, loose.schedule.R > 0),
        (cells.S, tight.schedule.S, loose.schedule.S),
    ):
        assert found.dtype == np.uint8
        assert ((found == BOTH) == (first & second)).all()
        assert ((found == FIRST) == (first & ~second)).all()
        assert ((found == SECOND) == (second & ~first)).all()
        assert ((found == NEITHER) == ~(first | second)).all()
    assert (cells.R == FIRST).any()
    assert (cells.S == SECOND).any()
    whole = tight.schedule  # one with fewer stages has nothing in the others
    part = Schedule(whole.graph, whole.R[:10], whole.S[:10])
    for cells in (difference(part, whole), difference(whole, part)):
        assert cells.R.shape == whole.R.shape
        assert (cells.R[:10] != FIRST).all()
        assert (cells.R[:10] != SECOND).all()
    assert ((difference(part, whole).R[10:] == SECOND) == (whole.R[10:] > 0)).all()


def test_what_cannot_be_compared_is_refused(tight: Any) -> None:
    with pytest.raises(ScheduleError, match=r"'linear8' \(17 operations\) and 'linear2' \(5 operations\) cannot be"):
        difference(tight.schedule, checkpoint_all(linear(2)))
    with pytest.raises(ScheduleError, match="'optimal' has no schedule within 2 B; compare solutions that have"):
        compare(tight, solve(linear(8), budget=2))
    with pytest.raises(GraphError, match="there is no operation 7; 'choices' has those from 0 to 6"):
        convolution_algorithms(checkpoint_all(chain_with_choices()), 7)


def test_the_figure_shows_cells_both_lines_and_the_numbers(tight: Any, loose: Any) -> None:
    figure: Any = compare(tight, loose)
    traces = {trace.name: trace for trace in figure.data}
    cells = difference(tight.schedule, loose.schedule)
    assert (np.asarray(traces["R"].z) == cells.R).all()
    assert (np.asarray(traces["S"].z) == cells.S).all()
    assert traces["R"].text[5][5] == "both"
    assert (max(traces["memory of A"].y), max(traces["memory of B"].y)) == (4, 8)
    names, first, second = traces["in numbers"].cells.values
    assert dict(zip(names, first, strict=True))["recomputations"] == "9"
    assert dict(zip(names, second, strict=True))["predicted peak"] == "8 B"


def test_cells_are_of_the_kind_of_what_runs(chosen: Any) -> None:
    names, cells = ("", *kinds_in(chosen.graph)), kinds_run(chosen)
    assert ((cells == 0) == (chosen.R == 0)).all()
    shown = {names[cells[stage, k] - 1] for stage, k in zip(*np.nonzero(chosen.R == 2), strict=True)}
    assert shown == {"masks", "algorithms"}
    assert set(cells[:, 2]) <= {0, 1 + names.index("masks")}  # what makes the mask is of the kind of what reads it


def test_uses_are_counted_by_kind_and_name(chosen: Any) -> None:
    assert implementations_used(chosen) == [
        Use("masks", "from bits", operations=1, runs=1, tolerance=0.0),
        Use("masks", "make mask", operations=1, runs=1, tolerance=0.0),
        Use("algorithms", "native", operations=1, runs=1, tolerance=1e-6),
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_bars_and_legend_say_what_runs(theme: Any, chosen: Any) -> None:
    figure: Any = implementation_images(chosen, theme)
    known = pictures.LIGHT if theme == "light" else pictures.DARK
    picture, bars, *squares = figure.data
    assert picture.type == "image"
    assert list(bars.y) == ["default", "masks", "algorithms"]
    assert sum(bars.x) == len(chosen.sequence)
    assert list(bars.marker.color) == [known[kind] for kind in ("", "masks", "algorithms")]
    assert [(one.name, one.marker.color) for one in squares] == list(zip(bars.y, bars.marker.color, strict=True))


def test_single_cells_of_large_matrices_are_marked_unless_there_are_too_many() -> None:
    diagonal = np.eye(PIXELS + 1, dtype=np.uint8)
    marked = legend_squares(diagonal, [(1, "computed", "#000000"), (2, "again", "#ff0000")])
    assert [len(square.x) for square in marked] == [PIXELS + 1, 0]
    full = np.ones((PIXELS + 1, MARKS // PIXELS + 1), dtype=np.uint8)
    for cells in (full, np.eye(3)):
        assert [square.x[0] for square in legend_squares(cells, [(1, "computed", "#000000")])] == [None]


def test_a_convolution_has_its_gradients_beside_it(chosen: Any) -> None:
    for k in (0, 6):
        assert [part.title for part in parts_of(chosen, k)] == ["forward", "weight gradient"]
    assert [part.title for part in parts_of(chosen, 5)] == ["relu backward"]
    assert is_convolution(chosen.graph, 0)
    assert not is_convolution(chosen.graph, 5)
    ways = parts_of(chosen, 0)[0].algorithms
    assert [(one.name, one.kind, one.workspace) for one in ways] == [("default", "", 0), ("native", "algorithms", 1600)]
    assert sum(one.runs for one in ways) == (chosen.R[:, 0] > 0).sum()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_implementations_that_run_are_filled_and_named(theme: Any, chosen: Any) -> None:
    figure: Any = convolution_algorithms(chosen, 0, theme)
    for part, trace in zip(parts_of(chosen, 0), figure.data, strict=True):
        assert list(trace.marker.symbol) == ["circle" if one.runs else "circle-open" for one in part.algorithms]
        assert list(trace.text) == [one.name if one.runs else "" for one in part.algorithms]
        hues = implementation_colours((one.kind for one in part.algorithms), theme)
        assert list(trace.marker.color) == [hues[one.kind] for one in part.algorithms]


def bars(figure: Any) -> dict[str, int]:
    return {trace.name: len(trace.x) for trace in figure.data if trace.type == "bar"}


def test_every_operation_is_a_box_of_its_pass_and_with_a_stage_what_runs_and_is_kept_stands_out(tight: Any) -> None:
    figure: Any = model_graph(linear(8))
    assert bars(figure) == {"forward": 8, "backward": 9}
    told = next(trace.text[0] for trace in figure.data if trace.name == "forward")
    assert all(words in told for words in ("v0", "1 B", "costs 1"))
    pair = Graph("pair", (Value("x", 30), Value("mask", 10)), (operation("f", "forward", [], [0, 1], 1.0),))
    assert kept_share(pair, np.array([False, True])).tolist() == [0.25]
    schedule, kinds = tight.schedule, computation_kinds(tight.schedule)
    t = int(np.argmax((kinds == RECOMPUTE).sum(axis=1)))
    found = bars(model_graph(schedule.graph, schedule, t))
    assert found["not in this stage"] == schedule.graph.n
    assert found["recompute"] == (kinds[t] == RECOMPUTE).sum() > 0
    assert found["forward"] + found["backward"] + found["recompute"] == (schedule.R[t] > 0).sum()
    assert found["kept into the stage"] == schedule.S[t].sum() > 0


def test_stages_that_do_not_exist_are_refused(tight: Any) -> None:
    with pytest.raises(ScheduleError, match=r"no stage 17; the schedule has stages 0 to 16"):
        model_graph(tight.schedule.graph, tight.schedule, 17)
    with pytest.raises(ScheduleError, match="stage 3 was given without a schedule"):
        model_graph(tight.schedule.graph, stage=3)


@pytest.fixture(params=["unet", "densenet161"])
def captured(request: pytest.FixtureRequest, data: Path) -> Graph:
    return Graph.load(str(data / "captured" / f"{request.param}.json"))


def along(layout: SnakeLayout) -> np.ndarray:
    """How far along the snake the centre of each operation is, in columns."""
    x = layout.positions[:, 0]
    return layout.row * layout.columns + np.where(layout.row % 2 == 0, x, layout.columns - x)


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


def test_chains_have_no_arcs_and_the_skips_of_a_residual_block_are_drawn() -> None:
    assert len(snake_layout(linear(9)).skips) == 0
    reads = {"in": [], "conv1": [0], "conv2": [1], "add": [0, 2]}
    operations = [operation(name, "forward", read, [k], 1.0) for k, (name, read) in enumerate(reads.items())]
    block = Graph("block", tuple(Value(name, 1) for name in "abcd"), tuple(operations))
    layout = snake_layout(block)
    assert layout.skips.tolist() == [[0, 3]]
    picture = snake_picture(block, layout)
    curve = arc(picture, 0, 3)
    assert curve[0, 0] == picture.boxes[0, [0, 2]].mean()
    assert curve[3, 0] == picture.boxes[3, [0, 2]].mean()
    middle = (np.array([1, 3, 3, 1]) / 8) @ curve
    assert 0 <= middle[1] < picture.boxes[1:3, 1].min()  # inside the row, above what it passes over


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


def test_every_kind_has_a_colour_of_its_own_in_both_themes() -> None:
    for theme in (pictures.LIGHT, pictures.DARK):
        assert set(theme) >= {"", *KINDS}
        assert len(set(theme.values())) == len(theme)
