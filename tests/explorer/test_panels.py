"""The panel beside what runs twice, without a browser: each draws what the state says, and only while it is seen."""

import linecache
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import ipywidgets as w
import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import UnknownNameError
from remat_explorer.explanations import explain_value, line_of, lines_of, uses_of_lines
from remat_explorer.explorer.controllers import fit_answers
from remat_explorer.explorer.controllers.driver import Driver
from remat_explorer.explorer.controllers.exploration_cache import show_cached, store_exploration
from remat_explorer.explorer.controllers.model_sources import NO_WEIGHTS, ModelSources, ModuleInputs
from remat_explorer.explorer.controllers.schedule_comparison import open_solution_file, pin_solution, swap_compared
from remat_explorer.explorer.controllers.screen import show_schedule
from remat_explorer.explorer.panels.explain_panel import explanation_html, margins, source_part
from remat_explorer.explorer.panels.panels import TERMS_PANEL, Panels
from remat_explorer.explorer.panels.side_panel import fill_places
from remat_explorer.explorer.panels.solver_panel import progress_svg
from remat_explorer.explorer.recording import Recording
from remat_explorer.explorer.state.state import FIT_OPTIMIZERS, PANELS, PRECISIONS, HistoryPoint, State
from remat_explorer.fit import optimizers
from remat_explorer.models import PRECISIONS as KNOWN_PRECISIONS
from remat_explorer.operation_details import SourceFile
from remat_explorer.permissions import Permissions
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import minimum_budget
from tests.explorer.driven import (
    QUIET,
    driver_of,
    explorer_of,
    html,
    measurement,
    message,
    plain,
    settled,
    solved,
)
from tests.figures.choices import chain_with_choices
from tests.hostile_names import HARM, hostile


def test_only_the_visible_panel_draws_and_the_others_catch_up(panels: Panels, state: State, monkeypatch: Any) -> None:
    offered = [name for _, name in (*panels.tabs.options, *panels.others.options) if name]
    assert offered == [*PANELS, TERMS_PANEL]
    assert set(panels.views) == set(PANELS)
    state.panel = "plan"
    explained = panels.views["explain"].content.html
    state.stage = 9
    assert panels.views["explain"].content.html == explained
    assert "t=9" in panels.views["plan"].content.html
    state.panel = "explain"
    assert "in stage 9" in plain(panels.views["explain"].content.html)
    monkeypatch.setattr(panels.views["plan"], "html", lambda: pytest.fail("drawn again"))
    state.panel = "plan"


def test_every_panel_says_what_to_do_before_there_is_anything() -> None:
    panels = Panels(State())
    assert [name for name in PANELS if len(plain(html(panels, name))) <= 40] == []


def test_the_selected_value_is_explained_and_a_click_on_a_name_selects(panels: Panels, state: State) -> None:
    state.value, state.stage = 4, 9
    shown = plain(html(panels, "explain"))
    assert "Kept: recomputing it would run" in shown
    assert "it reads v3 read by v5 , v12" in shown
    state.stage = 0
    assert "Not computed yet" in plain(panels.views["explain"].content.html)
    message(panels, "explain", value=5, stage=11)
    assert (state.value, state.stage) == (5, 11)
    message(panels, "explain", stage=3)
    assert (state.value, state.stage) == (5, 3)
    message(panels, "explain", value="7", stage=None)
    assert (state.value, state.stage) == (5, 3)
    message(panels, "explain", value=10**9, stage=-4)  # a click that is older than the schedule
    assert (state.value, state.stage) == (16, 0)


def test_the_peak_lists_what_is_alive_and_leads_there(panels: Panels, state: State) -> None:
    state.value = 16
    shown = html(panels, "peak")
    assert state.plan is not None
    peak = state.plan.timeline.peak_statement
    assert f"4 B at statement {peak}" in plain(shown)
    assert shown.count('class="row value') == 4  # four bytes of one each
    assert "PyTorch's allocator on a GPU: 2.00 MiB reserved, 2.00 KiB allocated" in unescape(plain(shown))
    message(panels, "peak", action="go")
    assert state.stage == state.plan.timeline.stage[peak]
    assert 'class="row value selected"' in panels.views["peak"].content.html


def test_the_solver_shows_incumbent_bound_gap_and_phase_while_it_works(panels: Panels, state: State) -> None:
    state.panel, state.busy = "solver", "solving"
    state.history = (HistoryPoint(0.5, 34.0, None), HistoryPoint(1.0, 34.0, 20.0), HistoryPoint(2.0, 26.0, 22.1))
    state.say("Solving within 4 B: branch and bound")
    shown = panels.views["solver"].content.html
    for said in ("branch and bound", "+52.9 %", "+30.0 %", "15.0 %"):  # 26 and 22.1 of 17
        assert said in shown
    assert shown.count("<polyline") == 2
    state.busy, state.answer = "", state.solution
    assert "Proven best : optimal, highs, within 4 B" in plain(panels.views["solver"].content.html)
    chart = progress_svg((HistoryPoint(0, 20, None), HistoryPoint(5, 15, None), HistoryPoint(10, 15, None)), 10.0)
    (line,) = re.findall(r'<polyline class="incumbent" points="([^"]*)"', chart)
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    assert [round(x) for x, _ in points] == [52, 212, 212, 372]
    assert points[0][1] == points[1][1] < points[2][1] == points[3][1]
    assert "+100.0 %" in chart
    assert "+50.0 %" in chart
    assert progress_svg((HistoryPoint(1, None, None),), 10.0) == ""


def test_the_legend_explains_terms_and_strategies_until_a_tab_is_chosen(panels: Panels, state: State) -> None:
    panels.others.value = TERMS_PANEL
    assert (state.legend, panels.tabs.value) == (True, None)
    shown = plain(panels._body.children[0].html)
    for term in ("stage t", "R", "S", "U", "budget", "overhead", "gap", "peak", "checkmate-ilp"):
        assert f" {term} " in shown
    for chosen, field in (("explain", panels.tabs), ("plan", panels.others), ("compare", panels.tabs)):
        field.value = chosen
        assert (state.legend, state.panel) == (False, chosen)
        assert panels._body.children == (panels.views[chosen].widget,)
    assert panels.others.value == ""  # so that any of them can be chosen again


def test_a_schedule_with_fewer_stages_is_drawn_before_the_stage_follows(panels: Any, state: State, tight: Any) -> None:
    state.stage, state.value = 16, 16
    small = rx.solve(rx.linear(2), budget="100%", strategy="checkpoint-all")
    for name in PANELS:
        state.panel = name
        state.schedule = tight.schedule
        state.schedule = small.schedule
    assert "in stage 4" in plain(html(panels, "explain"))


def test_two_solutions_are_compared_swapped_and_parted(panels: Panels, state: State, keep: rx.Solution) -> None:
    assert "disabled" in html(panels, "compare")
    message(panels, "compare", action="pin")
    first: Any = state.solution
    assert state.other is first
    second = rx.solve(rx.linear(8), budget=5)
    show_schedule(state, second.schedule, second)
    shown = plain(panels.views["compare"].content.html)
    for said in ("4 B of 4 B", "5 B of 5 B", "B costs", "What it computes more often: v"):
        assert said in shown
    assert "A costs" not in shown
    assert "A needs 1 B more memory, so not all of this is in vain." in shown
    message(panels, "compare", action="swap")
    assert (state.solution, state.other, state.schedule) == (first, second, first.schedule)
    state.other = keep
    assert f"computed only here {first.schedule.recomputations} 0" in plain(html(panels, "compare"))
    message(panels, "compare", action="stop")
    assert state.other is None
    pin_solution(state)
    state.schedule = state.solution = None
    state.graph = rx.linear(3)  # with which the other goes
    assert state.other is None
    for action in (pin_solution, swap_compared):
        action(state)
        assert state.tone == "warning"  # there is nothing to compare


def test_a_solution_file_is_opened_as_the_other_or_refused(panels: Panels, state: State, tmp_path: Path) -> None:
    state.panel = "compare"
    compare: Any = panels.views["compare"]
    compare.path.value = str(rx.solve(rx.linear(8), budget=5).save(tmp_path / "five.json"))
    compare.open.click()
    assert state.other is not None
    assert state.other.budget == 5
    assert "five.json" in state.status
    state.other = None
    (tmp_path / "list.json").write_text("[]")
    rx.solve(rx.linear(3), budget=5).save(tmp_path / "other.json")
    reasons = {"none": "No such file", "list": "is not a JSON object", "other": "another graph"}
    for name, reason in reasons.items():
        open_solution_file(state, str(tmp_path / f"{name}.json"))
        assert (state.other, state.tone) == (None, "error")
        assert reason in state.status


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found |= {tag, *(key for key, _ in attrs)}


def pages(widget: Any) -> Iterator[str]:
    if isinstance(getattr(widget, "html", None), str):
        yield widget.html
    if isinstance(widget, w.HTML):
        yield widget.value
    for child in getattr(widget, "children", ()):
        yield from pages(child)


@pytest.mark.parametrize("graph", [rx.linear(8), chain_with_choices()], ids=["chain", "choices"])
def test_no_name_becomes_an_element(graph: rx.Graph) -> None:
    explorer = explorer_of(graph=hostile(graph))
    state = explorer.state
    state.budget = state.smallest.known_feasible
    solved(explorer).compare("checkpoint-all")
    state.picture = "case"
    shown = set(pages(explorer))
    for panel in PANELS:
        state.panel = panel
        for value in range(len(graph.values)):
            state.value = value
            shown.update(pages(explorer))
    state.shortage = HARM
    shown.update(pages(explorer))
    state.shortage, state.measurement = "", measurement(state, 7)
    shown.update(pages(explorer))
    assert any("evil.example" in page for page in shown)  # it is there, as text
    dangerous = {"img", "script", "a", "onerror", "href", "src"}
    assert [page for page in shown if Tags(page).found & dangerous] == []


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).sigmoid()  # the line of the <layers>
        return x * 2  # the line of the result


@pytest.fixture(scope="module")
def graph() -> rx.Graph:
    return rx.capture(Net(), (torch.ones(64, 16),))


@pytest.fixture(scope="module")
def solution(graph: rx.Graph) -> rx.Solution:
    found = rx.solve(graph, "85%")
    assert found.schedule is not None
    assert found.schedule.recomputations
    return found


def explained(solution: rx.Solution, value: int, permissions: Permissions | None = None) -> str:
    schedule = solution.schedule
    assert schedule is not None
    plan = rx.Plan.of(schedule)
    return explanation_html(schedule, plan, explain_value(schedule, plan, 3, value), permissions or Permissions())


def number_of(comment: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


def test_the_margin_counts_what_a_line_keeps_and_repeats(graph: rx.Graph, solution: rx.Solution) -> None:
    schedule: Any = solution.schedule
    numbers, uses = lines_of(graph), uses_of_lines(schedule)
    assert next(line for _, line in numbers) == f"test_panels.py:{number_of('the line of the <layers>')}"
    runs = (schedule.R > 0).sum(axis=0)
    assert sum(use.again for use in uses) == sum(runs[k] - 1 for k in range(graph.n) if line_of(graph, k))
    first_backward = next(k for k, node in enumerate(graph.operations) if node.phase == "backward")
    kept = schedule.S[first_backward] * graph.value_bytes
    assert sum(use.kept for use in uses) == kept.sum()
    assert uses[0].kept > 0
    assert margins(schedule)["kept0"] == format_bytes(uses[0].kept)
    assert margins(schedule)["again0"] == f"{uses[0].again}×"


def test_the_lines_around_are_shown_as_text_with_the_selected_one_marked(solution: rx.Solution) -> None:
    said = explained(solution, 0)
    number = number_of("the line of the <layers>")
    assert said.count('<tr class="here" aria-current="true">') == 1
    here = said[said.index('<tr class="here"') :]
    assert f'<td class="number">{number}</td>' in here
    assert "# the line of the &lt;layers&gt;</code>" in here
    assert "<layers>" not in said
    assert f'<td class="number">{number - 3}</td>' in said
    assert f'<td class="number">{number - 4}</td>' not in said
    assert "\ue000" not in said
    assert "= torch.ops.aten.sigmoid.default(" in said  # the statement of the generated code


def test_a_graph_of_a_file_has_the_line_and_says_that_its_source_is_not_known(graph: rx.Graph, tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    graph.save(str(path))
    assert "the line of" not in path.read_text()
    assert str(Path(__file__).parent) not in path.read_text()
    loaded = rx.Graph.load(str(path))
    assert loaded == graph
    said = plain(explained(rx.solve(loaded, "100%"), 0))
    assert "test_panels.py:" in said
    assert "is not known: a graph file has only the number of the line." in said


def test_others_see_files_that_the_page_was_given_and_its_own_only(graph: Any, solution: Any, monkeypatch: Any) -> None:
    for refusing in (Permissions(()), Permissions(("net.py:make_model",))):
        said = explained(solution, 0, refusing)
        assert "is not shown here." in said
        assert "the line of" not in said
    monkeypatch.chdir(Path(__file__).parent)
    assert "the line of" in explained(solution, 0, Permissions((f"{Path(__file__).name}:make_model",)))
    zoo = rx.models.load("residual_net", batch=2).graph
    (said,) = source_part(zoo, 0, Permissions(())).values()
    assert "def forward(self, x: torch.Tensor)" in said


def test_what_is_not_known_of_a_source_is_said_and_only_lines_around_those_met_are_known(graph: rx.Graph) -> None:
    (file,) = {node.details.source for node in graph.operations if node.details and node.details.source}
    met = [number_of("the line of the <layers>"), number_of("the line of the result")]
    assert [n for n, _ in file.lines] == sorted({n for at in met for n in range(at - 4, at + 5)})
    details: Any = graph.operations[0].details
    unread = replace(details, source=SourceFile("gone.py", "/nowhere/gone.py"), line="gone.py:3")
    lost = replace(graph, operations=(replace(graph.operations[0], details=unread), *graph.operations[1:]))
    (said,) = source_part(lost, 0, Permissions()).values()
    assert "The source of gone.py:3 could not be read when the model was captured." in said
    assert "source" not in explained(rx.solve(rx.linear(3), "100%"), 0)  # which has no lines


def test_a_cell_of_a_notebook_is_shown_as_it_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.path.join("/tmp", "ipykernel_77", "123.py")
    written = "        return super().forward(x).exp()"
    code = f"from torch import nn\nclass Cell(nn.Linear):\n    def forward(self, x):\n{written}\n"
    monkeypatch.setitem(linecache.cache, path, (len(code), None, code.splitlines(keepends=True), path))
    room: dict[str, Any] = {"__name__": "cell"}
    exec(compile(code, path, "exec"), room)
    graph = rx.capture(room["Cell"](4, 4), (torch.ones(4, 4),))
    details: Any = graph.operations[0].details
    assert details.line == "notebook cell:4"
    assert dict(details.source.lines)[4] == written
    (said,) = source_part(graph, 0, Permissions()).values()
    assert "return super().forward(x).exp()" in said
    assert "notebook cell, as it was captured" in said


def test_the_live_page_says_the_same(graph: rx.Graph, solution: rx.Solution) -> None:
    frontier = rx.Frontier(graph, (solution,))
    recording = Recording(frontier, minimum_budget(graph), 10**6, permissions=Permissions())
    (point,) = recording.points()
    assert fill_places(recording.overview()["sources"]["source0"], point["margins"]) in explained(solution, 0)


SOON = 60.0


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    found = settled(Driver(State(batch=64, **QUIET), ModelSources("mlp")))
    yield found
    found.stop()


def test_a_question_is_answered_beside_everything_else_and_another_optimizer_is_a_click(driver: Driver) -> None:
    state, panels = driver.state, Panels(driver.state)
    assert "Does it fit?" in html(panels, "fit")
    driver.fit("1 GB", optimizer="adam")
    assert (state.panel, state.fit_asked, state.busy) == ("fit", True, "")
    assert driver.wait_for_fit(SOON)
    found = state.fitted
    assert (found.verdict, found.batch, found.recipe.optimizer) == ("yes", 64, "adam")
    shown = plain(html(panels, "fit"))
    for said in ("Fits into 1 GB (954 MiB) without recomputation", "activations", "Largest batch", "adamw with master"):
        assert said in shown
    sgd = next(i for i, other in enumerate(found.alternatives) if other.recipe.optimizer == "sgd")
    message(panels, "fit", action=f"recipe-{sgd}")
    assert driver.wait_for_fit(SOON)
    assert (state.fit_optimizer, state.fitted.recipe.optimizer) == ("sgd", "sgd")
    assert state.fitted.keep_all < found.keep_all
    state.fit_memory = "1 MB"
    assert not state.fitted, "what was answered was another question"
    message(panels, "fit", action="ask")
    assert driver.wait_for_fit(SOON)
    assert state.fitted.verdict == "no"
    assert "Does not fit into 1 MB" in plain(html(panels, "fit"))


def test_what_cannot_be_read_is_said_in_the_panel_which_offers_what_fit_takes(driver: Driver) -> None:
    assert set(FIT_OPTIMIZERS) == set(optimizers.OPTIMIZERS)
    assert set(PRECISIONS) == set(KNOWN_PRECISIONS)
    driver.fit("much")
    assert driver.wait_for_fit(SOON)
    assert "much&#x27; is not a number of bytes" in plain(html(Panels(driver.state), "fit"))
    with pytest.raises(UnknownNameError, match="optimiser"):
        driver.fit("1 GB", optimiser="adam")


def test_a_question_is_given_up_when_it_is_cancelled_or_another_model_chosen(driver: Driver, monkeypatch: Any) -> None:
    state, panels, cancelled = driver.state, Panels(driver.state), []

    def wait(state: State, event) -> str:
        cancelled.append(event.wait(SOON))
        return "an answer that nobody waits for"

    monkeypatch.setattr(fit_answers, "_fit", wait)
    driver.fit("1 GB")
    assert "Cancel" in html(panels, "fit")
    message(panels, "fit", action="stop")
    assert driver.wait_for_fit(SOON)
    driver.fit("1 GB")
    state.batch = 32
    assert driver.wait_for_fit(SOON)
    assert cancelled == [True, True]
    assert (state.fitted, state.fit_asked) == (None, False)


def test_a_module_of_ones_own_is_asked_about_and_a_graph_alone_cannot_be() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.zeros(4, 8)
    own = settled(Driver(State(**QUIET), ModelSources(model, (x,))))
    assert isinstance(own.state.inputs, ModuleInputs)
    own.fit("1 MB", optimizer="momentum")
    assert own.wait_for_fit(SOON)
    assert own.state.fitted.verdict == "yes"
    assert own.state.fitted.parameters == 72
    bare = driver_of(rx.linear(4))
    assert bare.state.panel == "explain"
    bare.fit("1 MB")
    assert bare.wait_for_fit(SOON)
    assert "Choose a model" in bare.state.fit_refusal


def test_a_model_that_is_too_large_to_run_shows_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remat_explorer.explorer.controllers.model_sources.MAX_WEIGHT_BYTES", 0)
    large = settled(Driver(State(batch=4, **QUIET), ModelSources("mlp")))
    assert large.state.panel == "fit"
    assert large.state.no_execution == NO_WEIGHTS
    assert store_exploration(large.state)
    assert show_cached(State(model="mlp", batch=4))  # before it is captured once more
