"""What leaves the explorer: files, a picture of how it stood, and the live page as far as Python makes it."""

import base64
import json
import re
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.errors import RematError, UnknownNameError
from remat_explorer.explanations import explain_value
from remat_explorer.explorer import Scene, State
from remat_explorer.explorer.controllers.executing import describe_proof
from remat_explorer.explorer.export import EXPORTS
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
from remat_explorer.explorer.static_view import static_html
from remat_explorer.explorer.story import tell
from remat_explorer.quantities import format_overhead
from remat_explorer.solvers import Frontier, minimum_budget
from tests.explorer.driven import driver_of, explorer_of, measurement, opened, settled, solved
from tests.figures.choices import chain_with_choices
from tests.hostile_names import hostile
from tests.project.shell import run


@pytest.fixture(scope="module")
def explorer() -> Any:
    return explorer_of(graph=rx.linear(8))


@pytest.fixture
def chain(explorer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An explorer on a solved chain, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    explorer.state.budget = 4
    return solved(explorer)


def test_graph_solution_and_curve_load_back_and_no_file_is_replaced(chain: Any, tmp_path: Path) -> None:
    graph = rx.Graph.load(str(chain.export("graph")))
    solution = rx.Solution.load(chain.export("solution"), graph)
    assert (solution.cost, solution.budget) == (chain.solution.cost, 4)
    assert chain.state.status.startswith("Saved linear8-solution.json (")
    assert chain.state.tone == "good"
    chain.state.frontier = Frontier(chain.state.graph, (chain.solution,))
    loaded = Frontier.load(chain.export("sweep"), chain.state.graph)
    assert [point.cost for point in loaded.points] == [chain.solution.cost]
    (tmp_path / "mine.json").write_text("precious")
    assert chain.export("graph", "mine.json").name == "mine-2.json"
    assert chain.export("graph", tmp_path / "mine.json").name == "mine-3.json"
    assert (tmp_path / "mine.json").read_text() == "precious"


def test_the_report_is_about_the_schedule_on_the_screen_also_after_an_infeasible_budget(chain: Any) -> None:
    path = chain.export("report")
    settled(chain)
    assert path.name == "linear8-report.html"
    assert "A training step of linear8 fits into 4 B" in path.read_text(encoding="utf-8")
    assert "Saved linear8-report.html" in chain.state.status
    chain.state.budget = 2
    assert solved(chain).state.answer.schedule is None
    again = chain.export("report")
    settled(chain)
    assert "fits into" in again.read_text(encoding="utf-8")


def test_every_kind_is_in_the_menu_and_what_is_missing_is_said(chain: Any) -> None:
    chain.state.frontier = None
    said = {kind: missing for kind, _, missing in chain._export.widget.entries}
    assert list(said) == list(EXPORTS)
    for kind, message in (
        ("trace", "whose times were measured"),
        ("snapshot", "on CUDA only"),
        ("sweep", "no trade-off curve yet"),
    ):
        assert message in said[kind]
        with pytest.raises(RematError, match=message):
            chain.export(kind)
    with pytest.raises(UnknownNameError, match="did you mean 'report'"):
        chain.export("raport")


def test_a_folder_that_is_not_there_is_an_error_in_words(chain: Any) -> None:
    with pytest.raises(RematError, match="cannot be written: No such file or directory"):
        chain.export("graph", "no/such/folder/graph.json")
    path = chain.export("report", "no/such/folder/report.html")
    settled(chain)
    assert chain.state.tone == "error"
    assert not path.exists()


def test_the_standing_picture_has_the_matrices_the_memory_and_what_is_proven() -> None:
    state = driver_of(rx.linear(8), budget=4).state
    shown = static_html(state)
    assert "<b>linear8</b>: Best known within 4 B: overhead +52.9 %, proven best." in shown
    assert shown.count("data:image/png;base64,") == 3
    steps = re.findall(r"V([\d.]+)H", shown)
    assert len(steps) == len(state.plan.timeline.during)
    assert min(map(float, steps)) == pytest.approx(120 * (1 - state.plan.peak / (1.05 * 4)), abs=0.1)
    assert "<img src=x" not in static_html(driver_of(hostile(rx.linear(4))).state)


def test_it_comes_beneath_the_explorer_but_in_voila_and_follows_what_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[tuple[dict[str, Any], dict[str, Any]]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **how: displayed.append((data, how)))
    monkeypatch.delenv("SERVER_SOFTWARE", raising=False)
    explorer = explorer_of(graph=rx.linear(8), budget=6)
    explorer._ipython_display_()
    (widget, _), (first, how) = displayed
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert "within 6 B" in first["text/html"]
    assert not how["update"]
    explorer.state.budget = 4
    solved(explorer)
    latest, again = displayed[-1]
    assert "within 4 B" in latest["text/html"]
    assert (again["update"], again["display_id"]) == (True, how["display_id"])
    count = len(displayed)
    solved(explorer)  # from the cache, and the same
    assert len(displayed) == count
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5")
    explorer._ipython_display_()
    assert len(displayed) == count + 1
    explorer.close()


GRAPH = rx.linear(8)


@pytest.fixture(scope="module")
def frontier() -> rx.Frontier:
    return rx.Frontier(GRAPH, tuple(rx.solve(GRAPH, budget) for budget in (3, 4, 6, 10)))


@pytest.fixture(scope="module")
def recording(frontier: rx.Frontier) -> Recording:
    return Recording(frontier, minimum_budget(GRAPH), 10)


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


def numbered(said: str, plan: rx.Plan) -> str:
    """Fills the places of statements as the page does: each by its stage and how far behind its begin it is."""
    begin = np.searchsorted(plan.timeline.stage, np.arange(plan.timeline.stage[-1] + 1))

    def number(found: re.Match[str]) -> str:
        places = [begin[int(stage)] + int(offset) for stage, offset in re.findall(r"(\d+)\.(\d+)", found[0])]
        return str(places[0] if len(places) == 1 else places[1] - places[0] + 1)

    return re.sub("\ue000@[\\d.,]+\ue001", number, said)


@pytest.mark.parametrize(
    "solve",
    [lambda: rx.solve(GRAPH, 4), lambda: rx.solve(chain_with_choices(), "85%", "monet")],
    ids=["recomputed", "with choices"],
)
def test_what_is_said_of_every_value_in_every_stage_is_what_the_explorer_says(solve: Any) -> None:
    solution = solve()
    schedule, plan = solution.schedule, solution.plan
    for value in range(len(solution.graph.values)):
        parts, reasons = record_explanations(schedule, plan, StatementPlaces(plan), value)
        for stage in range(schedule.stages):
            *_, reason = (reason for reason in reasons if reason[0] <= stage)
            filling = dict(zip(OF_SCHEDULE + OF_REASON, [*parts, *reason[1:]], strict=True))
            filling |= stage_parts(schedule, plan, stage) | {"total": str(len(plan.statements))}
            said = numbered(fill_places(value_template(schedule, value), filling), plan)
            assert said == explanation_html(schedule, plan, explain_value(schedule, plan, stage, value))


def test_each_step_tells_the_story_of_the_point_that_is_best_there(frontier: Any, recording: Recording) -> None:
    steps, peaks = recording.steps(), [peak for _, peak in frontier.scheduled()]
    for budget in range(3, 12):
        _, place, text, remedy = [step for step in steps if step[0] <= budget][-1]
        best: Any = frontier.best(budget)
        assert best.peak == peaks[place]
        assert remedy == 0
        said = fill_places(text, {"budget": f"{budget} B", "used": "7", "run": "", "proof": ""})
        state = State(graph=GRAPH, schedule=best.schedule, checkpoint_all_peak=10, budget=budget)
        assert f">{tell(state).sentence} <" in said
        assert ("proven best" in said) == (best.status == "optimal")
        assert f"overhead {format_overhead(best.overhead)}, " in said
    begin, place, text, remedy = steps[0]
    assert (begin, place, remedy) == (0, -1, 3)
    assert "Nothing fits into " in text


def test_every_point_has_its_matrices_its_map_and_its_stages(frontier: rx.Frontier, recording: Recording) -> None:
    points, maps = list(recording.points()), list(recording.maps())
    frames = recording.overview()["matrices"]["frames"]
    assert [frame[0] for frame in frames] == [placed["arena"]["size"] for placed in maps] == [3, 4, 6, 10]
    for (schedule, _), frame, placed in zip(frontier.scheduled(), frames, maps, strict=True):
        _, rows, largest, lengths, packed, _ = frame
        cells = MatrixCells.of(schedule)
        assert zlib.decompress(base64.b64decode(packed["bytes"])) == cells.runs + cells.R + cells.S + cells.U
        assert lengths == tuple(map(len, (cells.runs, cells.R, cells.S, cells.U)))
        assert (rows, largest) == (schedule.stages, cells.largest)
        assert len(placed["columns"]["birth"]) == len(schedule.sequence)
        assert len(placed["lines"]["starts"]) == schedule.stages + 1
    axes = ("xaxis", "yaxis", "yaxis2")
    assert len({json.dumps([point["figure"]["layout"][axis]["range"] for axis in axes]) for point in points}) == 1
    for point, (schedule, peak) in zip(points, recording.scheduled, strict=True):
        parts = {name: texts_of(packed) for name, packed in point["stages"].items()}
        assert parts["stage"] == [str(stage) for stage in range(schedule.stages)]
        assert {len(point["spans"]), *map(len, parts.values())} == {schedule.stages}
        starts = [start for start, _ in point["spans"]]
        assert starts == sorted(starts)
        assert set(point["hits"]) == set(range(schedule.stages))
        assert np.sum([trace["y"] for trace in point["figure"]["data"][:4]], axis=0).max() == peak


def test_the_page_counts_its_parts_and_keeps_everything_where_nothing_fits(frontier: Any, tmp_path: Path) -> None:
    nothing_fits = opened(rx.save_page(rx.solve(GRAPH, 2), tmp_path / "page.html"))
    assert [peak for peak, *_ in nothing_fits["overview"]["matrices"]["frames"]] == [10]
    parts: list[tuple[int, int]] = []
    page = live_page(frontier, on_progress=lambda done, total: parts.append((done, total)))
    assert parts == [(i + 1, 9) for i in range(9)]  # four points with their maps, and 17 values at once
    assert page.text.count('<script type="application/gzip"') == 1 + 9 + 2  # the overview, and two scripts
    with pytest.raises(rx.errors.FileError, match="nowhere"):
        rx.save_page(rx.solve(GRAPH, 4), tmp_path / "nowhere" / "page.html")


def test_a_measured_schedule_alone_brings_its_measurement(frontier: rx.Frontier, recording: Recording) -> None:
    found = measurement(State(graph=GRAPH, schedule=frontier.points[1].schedule))
    measured = Recording(frontier, minimum_budget(GRAPH), 10, measurement=found)
    run = measured.overview()["run"]
    assert (run["point"], run["peak"], run["proof"]) == (1, 4, describe_proof(found))
    lines = [
        next(trace for trace in point["figure"]["data"] if trace["name"] == "measured") for point in measured.points()
    ]
    assert [line["visible"] for line in lines] == [False, True, False, False]
    assert max(lines[1]["y"]) == 4
    last = measured.presented.scenes()[-1]
    assert (last["caption"], last["budget"]) == (f"Proof: {describe_proof(found)}", 4)  # at its own schedule
    assert recording.overview()["run"] is None
    proven = Scene("{proof}", execute=True)  # which only what was measured can be
    assert [len(made.presented.scenes([proven])) for made in (recording, measured)] == [0, 1]


def test_report_writes_the_page_with_the_lines_of_a_model_unless_they_are_kept_out(tmp_path: Path, capsys: Any) -> None:
    graph, page = tmp_path / "graph.json", tmp_path / "page.html"
    GRAPH.save(str(graph))

    def overview(*asked: str) -> dict[str, Any]:
        code, said, _ = run(capsys, "report", *asked, "--interactive", "-o", str(page))
        assert code == 0
        assert f"written to {page}" in said
        return opened(page)["overview"]

    assert len(overview(str(graph), "--budget", "4", "--sweep", "3")["matrices"]["frames"]) >= 3
    for more, is_there in ((), True), (("--no-source",), False):
        sources = overview("residual_net", "--batch", "2", "--budget", "100%", *more)["sources"]
        assert ("def forward(self, x" in "".join(sources.values())) == is_there


def test_the_live_page_and_the_report_of_a_plan_that_sends_have_its_copies(tmp_path: Path) -> None:
    found = rx.solve(GRAPH, 4, strategy="offload", transfers=rx.Transfers(1.0, 1.0), time_limit=2)
    assert found.plan is not None
    page = opened(rx.save_page(found, tmp_path / "page.html"))
    overview, frames = page["overview"], page["overview"]["matrices"]["frames"]
    at = next(i for i, frame in enumerate(frames) if frame[5])
    assert frames[at][0] == found.plan.peak == 4
    assert "travel to the host at 1 B a unit of cost" in json.dumps(overview["steps"])
    assert overview["begin"][0] == 4
    assert [len(engine["busy"]) > 0 for engine in page[f"map-{at}"]["lanes"]["engines"]] == [True, True]
    assert "Sent to the host in stage" in json.dumps(page["values-0"])
    assert overview["curves"]["best"]["sent"][0][0] == 4
    report = rx.report(found, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What travels" in report
    assert "not measured" in report
