"""The person's own lines beside an explanation: what stands in the margin, and what is not shown."""

from __future__ import annotations

import linecache
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.explanations import explain_value
from remat_explorer.explanations.operations import line_of, lines_of, uses_of_lines
from remat_explorer.explorer.panels.explain_panel import explanation_html, margins, source_part, source_parts
from remat_explorer.explorer.panels.side_panel import fill_places
from remat_explorer.explorer.recording import Recording
from remat_explorer.operation_details import SourceFile
from remat_explorer.permissions import Permissions
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_bytes
from remat_explorer.solvers import minimum_budget
from tests.explorer.panel_tools import plain
from tests.explorer.test_live_page import opened


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
    plan = Plan.of(schedule)
    return explanation_html(schedule, plan, explain_value(schedule, plan, 3, value), permissions or Permissions())


def number_of(comment: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {comment}"))


def test_the_margin_counts_what_a_line_keeps_and_repeats(graph: rx.Graph, solution: rx.Solution) -> None:
    schedule: Any = solution.schedule
    numbers, uses = lines_of(graph), uses_of_lines(schedule)
    assert next(line for _, line in numbers) == f"test_explain_panel.py:{number_of('the line of the <layers>')}"
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


def test_the_statement_of_the_generated_code_is_shown(graph: rx.Graph, solution: rx.Solution) -> None:
    assert "= torch.ops.aten.sigmoid.default(" in explained(solution, 0)
    details: Any = graph.operations[0].details
    assert all(call.split(" = ")[0].isidentifier() for call in details.calls)
    assert "parameter_layers_0_bias" in " ".join(details.calls)


def test_a_graph_of_a_file_has_the_line_and_says_that_its_source_is_not_known(graph: rx.Graph, tmp_path: Path) -> None:
    graph.save(str(tmp_path / "graph.json"))
    assert "the line of" not in (tmp_path / "graph.json").read_text()
    assert str(Path(__file__).parent) not in (tmp_path / "graph.json").read_text()
    loaded = rx.Graph.load(str(tmp_path / "graph.json"))
    assert loaded == graph
    said = plain(explained(rx.solve(loaded, "100%"), 0))
    assert "test_explain_panel.py:" in said
    assert "is not known: a graph file has only the number of the line." in said


def test_a_graph_without_lines_says_nothing_of_them(state: Any) -> None:
    assert "source" not in explained(rx.solve(rx.linear(3), "100%"), 0)


def test_a_page_that_others_see_shows_files_that_it_was_given_and_its_own_only(
    graph: rx.Graph, solution: rx.Solution, monkeypatch: pytest.MonkeyPatch
) -> None:
    for refusing in (Permissions(()), Permissions(("net.py:make_model",))):
        said = explained(solution, 0, refusing)
        assert "is not shown here." in said
        assert "the line of" not in said
    monkeypatch.chdir(Path(__file__).parent)
    assert "the line of" in explained(solution, 0, Permissions((f"{Path(__file__).name}:make_model",)))
    zoo = rx.models.load("residual_net", batch=2).graph
    (said,) = source_part(zoo, 0, Permissions(())).values()
    assert "def forward(self, x: torch.Tensor)" in said


def test_a_file_that_could_not_be_read_is_said(graph: rx.Graph) -> None:
    details: Any = graph.operations[0].details
    unread = replace(details, source=SourceFile("gone.py", "/nowhere/gone.py"), line="gone.py:3")
    lost = replace(graph, operations=(replace(graph.operations[0], details=unread), *graph.operations[1:]))
    (said,) = source_part(lost, 0, Permissions()).values()
    assert "The source of gone.py:3 could not be read when the model was captured." in said


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


def test_only_lines_that_the_trace_met_and_those_around_them_are_remembered(graph: rx.Graph) -> None:
    files = {node.details.source for node in graph.operations if node.details is not None and node.details.source}
    assert len(files) == 1
    (file,) = files
    met = [number_of("the line of the <layers>"), number_of("the line of the result")]
    assert [n for n, _ in file.lines] == sorted({n for at in met for n in range(at - 4, at + 5)})


def test_the_live_page_says_the_same_and_can_leave_it_out(
    graph: rx.Graph, solution: rx.Solution, tmp_path: Path
) -> None:
    frontier = rx.Frontier(graph, (solution,))
    recording = Recording(frontier, minimum_budget(graph), 10**6, permissions=Permissions())
    overview, (point,) = recording.overview(), list(recording.points())
    (blocks,) = [
        fill_places(block, point["margins"]) for name, block in overview["sources"].items() if name == "source0"
    ]
    assert blocks in explained(solution, 0)
    kept_out = opened(rx.save_page(solution, tmp_path / "without.html", source=False))["overview"]["sources"]
    assert all("is not shown here" in block for block in kept_out.values())
    shown = opened(rx.save_page(solution, tmp_path / "with.html"))["overview"]["sources"]
    assert shown == source_parts(graph, Permissions())
    assert "the line of the" in "".join(shown.values())
