"""The page without a kernel, as far as Python makes it: what it holds is what the explorer shows."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.explanations import explain_value
from remat_explorer.explorer.live_page import live_page
from remat_explorer.explorer.matrices import MatrixCells
from remat_explorer.explorer.panels.explain_panel import (
    OF_REASON,
    OF_SCHEDULE,
    explanation_html,
    stage_parts,
    value_template,
)
from remat_explorer.explorer.panels.side_panel import fill_places
from remat_explorer.explorer.recorded_points import StatementPlaces, record_explanations
from remat_explorer.explorer.recording import GAP, Recording, text_patterns
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.executing import describe_proof
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_overhead
from remat_explorer.solvers import minimum_budget
from tests.explorer.panel_tools import measurement
from tests.figures.choices import chain_with_choices
from tests.project.shell import run


@pytest.fixture(scope="module")
def frontier() -> rx.Frontier:
    graph = rx.linear(8)
    return rx.Frontier(graph, tuple(rx.solve(graph, budget) for budget in (3, 4, 6, 10)))


@pytest.fixture(scope="module")
def recording(frontier: rx.Frontier) -> Recording:
    return Recording(frontier, minimum_budget(frontier.graph), 10)


def opened(path: Path) -> dict[str, Any]:
    """The documents in a page, by their identities."""
    found = re.findall(r'<script type="application/gzip" id="([\w-]+)">([^<]*)</script>', path.read_text("utf-8"))
    return {
        name: json.loads(gzip.decompress(base64.b64decode(content)))
        for name, content in found
        if name not in ("plotly", "script")
    }


def texts_of(packed: dict[str, Any]) -> list[str]:
    """Texts with their numbers in their gaps, as the page reads them."""
    rows = [zip(*map(accumulate, columns), strict=True) for columns in packed["columns"]]
    said = []
    for pattern in packed["which"]:
        first, *pieces = packed["patterns"][pattern].split(GAP)
        numbers = next(rows[pattern]) if pieces else ()
        said.append(first + "".join(f"{number}{piece}" for number, piece in zip(numbers, pieces, strict=True)))
    return said


def test_texts_of_any_numbers_come_back() -> None:
    texts = ["7.05 ms of 12", "7.5 ms of 3", "007", "", "conv2d", f"{10**20} B", "conv1d", "-3", "7.05 ms of 0", GAP]
    assert texts_of(text_patterns(texts)) == [*texts[:-1], ""]


def numbered(said: str, plan: Plan) -> str:
    """Fills the places of statements as the page does: each by its stage and how far behind its begin it is."""
    begin = np.searchsorted(plan.timeline.stage, np.arange(plan.timeline.stage[-1] + 1))

    def number(found: re.Match[str]) -> str:
        places = [begin[int(stage)] + int(offset) for stage, offset in re.findall(r"(\d+)\.(\d+)", found[0])]
        return str(places[0] if len(places) == 1 else places[1] - places[0] + 1)

    return re.sub("\ue000@[\\d.,]+\ue001", number, said)


SOLUTIONS = {
    "recomputed": lambda: rx.solve(rx.linear(8), 4),
    "with choices": lambda: rx.solve(chain_with_choices(), "85%", "monet"),
}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_what_is_said_of_every_value_in_every_stage_is_what_the_explorer_says(name: str) -> None:
    solution = SOLUTIONS[name]()
    schedule, plan = solution.schedule, solution.plan
    assert schedule is not None
    assert plan is not None
    for value in range(len(solution.graph.values)):
        parts, reasons = record_explanations(schedule, plan, StatementPlaces(plan), value)
        for stage in range(schedule.stages):
            *_, reason = (reason for reason in reasons if reason[0] <= stage)
            filling = dict(zip(OF_SCHEDULE + OF_REASON, [*parts, *reason[1:]], strict=True))
            filling |= stage_parts(schedule, plan, stage) | {"total": str(len(plan.statements))}
            said = numbered(fill_places(value_template(schedule, value), filling), plan)
            assert said == explanation_html(schedule, plan, explain_value(schedule, plan, stage, value))


def test_each_step_names_the_point_that_is_best_there_and_what_is_proven(
    frontier: rx.Frontier, recording: Recording
) -> None:
    steps, peaks = recording.steps(), [peak for _, peak in frontier.scheduled()]
    for budget in range(3, 12):
        _, place, text = [step for step in steps if step[0] <= budget][-1]
        best = frontier.best(budget)
        assert best is not None
        assert best.peak == peaks[place]
        assert ("optimal (proven)" in text) == (best.status == "optimal")
        assert best.overhead is not None
        assert text.startswith(f"overhead {format_overhead(best.overhead)}, ")
    assert steps[0][0] == 3


def test_frames_hold_the_matrices_of_the_points(frontier: rx.Frontier, recording: Recording) -> None:
    frames = recording.overview()["matrices"]["frames"]
    assert [frame[0] for frame in frames] == [3, 4, 6, 10]
    for (schedule, _), (_, rows, largest, lengths, packed) in zip(frontier.scheduled(), frames, strict=True):
        cells = MatrixCells.of(schedule)
        content = zlib.decompress(base64.b64decode(packed["bytes"]))
        assert content == cells.runs + cells.R + cells.S + cells.U
        assert lengths == tuple(map(len, (cells.runs, cells.R, cells.S, cells.U)))
        assert (rows, largest) == (schedule.stages, cells.largest)


def test_axes_are_the_same_for_every_point_and_stages_are_in_their_places(recording: Recording) -> None:
    points = list(recording.points())
    ranges = {
        json.dumps([point["figure"]["layout"][axis]["range"] for axis in ("xaxis", "yaxis", "yaxis2")])
        for point in points
    }
    assert len(ranges) == 1
    for point, (schedule, peak) in zip(points, recording.scheduled, strict=True):
        parts = {name: texts_of(packed) for name, packed in point["stages"].items()}
        assert parts["stage"] == [str(stage) for stage in range(schedule.stages)]
        assert {len(point["spans"]), *map(len, parts.values())} == {schedule.stages}
        starts = [start for start, _ in point["spans"]]
        assert starts == sorted(starts)
        assert set(point["hits"]) == set(range(schedule.stages))
        heights = np.sum([trace["y"] for trace in point["figure"]["data"][:4]], axis=0)
        assert heights.max() == peak


def test_a_figure_has_what_differs_in_the_dark_and_with_other_methods() -> None:
    graph = rx.linear(8)
    frontier = rx.Frontier(graph, (rx.solve(graph, 4), rx.solve(graph, 4, "griewank"), rx.solve(graph, 10)))
    point = next(Recording(frontier, minimum_budget(graph), 10).points())
    griewank = len(point["figure"]["data"]) - 1
    assert point["figure"]["data"][griewank]["x"] == []
    methods = {tuple(path): value for path, value in point["methods"]}
    assert methods["data", griewank, "x"] == [4]
    assert ("data", griewank, "marker", "color") not in methods
    assert ("layout", "font", "color") in {tuple(path) for path, _ in point["dark"]}


def test_a_page_of_a_solution_has_it_and_keeping_everything(tmp_path: Path) -> None:
    path = rx.save_page(rx.solve(rx.linear(8), 4), tmp_path / "page.html")
    documents = opened(path)
    assert [peak for peak, *_ in documents["overview"]["matrices"]["frames"]] == [4, 10]
    assert {"point-0", "point-1", "values-0"} <= documents.keys()
    assert len(documents["values-0"]["values"]) == 17
    texts = texts_of(documents["values-0"]["texts"])
    count, points, which = documents["values-0"]["values"][0]
    assert len(which) == 2
    for parts, (_, reasons, _) in (points[place] for place in which):
        assert '<svg class="strip"' in texts[:count][parts[0]]
        assert 'class="reason computed"' in texts[:count][reasons[0]]


def test_progress_counts_every_part_of_the_page(frontier: rx.Frontier) -> None:
    parts: list[tuple[int, int]] = []
    page = live_page(frontier, on_progress=lambda done, total: parts.append((done, total)))
    assert parts == [(i + 1, 9) for i in range(9)]  # four points with their maps, and 17 values at once
    assert page.text.count('<script type="application/gzip"') == 1 + 9 + 2  # the overview, and two scripts


def test_a_page_as_the_output_of_a_cell_is_a_frame_that_is_nothing_but_the_page(frontier: rx.Frontier) -> None:
    page = rx.page(frontier)
    shown = page._repr_mimebundle_()
    framed = re.search(r'<iframe [^>]*sandbox="allow-scripts" srcdoc="([^"]*)"', shown["text/html"])
    assert framed is not None
    assert html.unescape(framed[1]) == page.text
    assert shown["text/plain"].startswith("the live page of linear8, ")


def test_where_nothing_fits_the_page_shows_what_keeps_everything(tmp_path: Path) -> None:
    path = rx.save_page(rx.solve(rx.linear(8), 2), tmp_path / "page.html")
    assert [peak for peak, *_ in opened(path)["overview"]["matrices"]["frames"]] == [10]


def test_a_measured_schedule_brings_its_measurement_and_no_other_point_has_one(
    frontier: rx.Frontier, recording: Recording
) -> None:
    shown = frontier.points[1]
    state = State(graph=shown.graph, schedule=shown.schedule)
    found = measurement(state)
    measured = Recording(frontier, minimum_budget(frontier.graph), 10, measurement=found)
    run = measured.overview()["run"]
    assert (run["point"], run["peak"], run["proof"]) == (1, 4, describe_proof(found))
    lines = [
        next(trace for trace in point["figure"]["data"] if trace["name"] == "measured") for point in measured.points()
    ]
    assert [line["visible"] for line in lines] == [False, True, False, False]
    assert max(lines[1]["y"]) == 4
    assert recording.overview()["run"] is None


def test_a_folder_that_is_not_there_is_said(frontier: rx.Frontier, tmp_path: Path) -> None:
    with pytest.raises(rx.errors.FileError, match="nowhere"):
        rx.save_page(frontier, tmp_path / "nowhere" / "page.html")


def test_report_writes_the_page_where_it_is_asked_for(tmp_path: Path, capsys: Any) -> None:
    graph, page = tmp_path / "graph.json", tmp_path / "page.html"
    rx.linear(8).save(str(graph))
    code, said, _ = run(capsys, "report", str(graph), "--budget", "4", "--sweep", "3", "--interactive", "-o", str(page))
    assert code == 0
    assert f"written to {page}" in said
    assert len(opened(page)["overview"]["matrices"]["frames"]) >= 3


def test_the_page_of_a_model_has_its_lines_unless_they_are_kept_out(tmp_path: Path, capsys: Any) -> None:
    asked = ("report", "residual_net", "--batch", "2", "--budget", "100%", "--interactive", "-o")
    page = tmp_path / "page.html"
    for more, is_there in ((), True), (("--no-source",), False):
        assert run(capsys, *asked, str(page), *more)[0] == 0
        assert ("def forward(self, x" in "".join(opened(page)["overview"]["sources"].values())) == is_there


def test_every_point_has_a_map_whose_block_is_no_larger_than_its_peak_needs(
    frontier: rx.Frontier, recording: Recording
) -> None:
    maps = list(recording.maps())
    assert [placed["arena"]["size"] for placed in maps] == [3, 4, 6, 10]
    for placed, (schedule, _) in zip(maps, frontier.scheduled(), strict=True):
        assert len(placed["columns"]["birth"]) == len(schedule.sequence)
        assert len(placed["lines"]["starts"]) == schedule.stages + 1
    memory = recording.overview()["memory"]
    assert memory["other"]["bytes"] == 10
    assert [name for name, *_ in memory["names"]["values"]] == [value.name for value in frontier.graph.values]
