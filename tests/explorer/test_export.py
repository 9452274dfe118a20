"""Export without a browser: files that load back, names that are free, and what is missing in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.errors import RematError, UnknownNameError
from remat_explorer.explorer.export import EXPORTS, free_path, report_origin
from remat_explorer.explorer.work.executing import describe_proof
from remat_explorer.solvers import Frontier
from tests.explorer.test_live_page import opened

QUIET: dict[str, Any] = {"improve": False, "sweep": False}  # what is exported is what was asked for


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An explorer on a solved chain, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    explorer = rx.Explorer(graph=rx.linear(8), **QUIET)
    assert explorer.wait(120)
    explorer.state.budget = 4
    explorer.solve()
    assert explorer.wait(60)
    return explorer


@pytest.fixture(scope="module")
def executed() -> Any:
    """An explorer on a small module, solved and executed."""
    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())]
    net, batch = nn.Sequential(*layers), torch.randn(512, 64)
    explorer = rx.Explorer(net, (batch,), loss=lambda out: out.square().mean(), **QUIET)
    assert explorer.wait(120)
    smallest = explorer.state.smallest
    assert smallest is not None
    explorer.state.budget = (smallest.known_feasible + explorer.state.checkpoint_all_peak) // 2
    explorer.solve()
    assert explorer.wait(60)
    explorer.execute()
    assert explorer.wait(120)
    assert explorer.measurement is not None
    return explorer


def reasons(explorer: Any) -> dict[str, str]:
    """What the menu says is missing, by kind."""
    return {kind: missing for kind, _, missing in explorer._export.widget.entries}


def test_the_live_page_has_what_was_measured(executed: Any, tmp_path: Path) -> None:
    executed.state.frontier = Frontier(executed.state.graph, ())  # a curve that does not have the schedule yet
    executed.export("page", tmp_path / "page.html")
    assert executed.wait(120)
    run = opened(tmp_path / "page.html")["overview"]["run"]
    assert run["proof"] == describe_proof(executed.measurement)
    assert run["peak"] == executed.solution.peak
    executed.state.frontier = None


def test_graph_and_solution_load_back(chain: Any) -> None:
    graph = rx.Graph.load(str(chain.export("graph")))
    solution = rx.Solution.load(chain.export("solution"), graph)
    assert (solution.cost, solution.budget) == (chain.solution.cost, 4)
    assert chain.state.status.startswith("Saved linear8-solution.json (")
    assert chain.state.tone == "good"


def test_no_file_is_replaced(chain: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("precious")
    assert chain.export("graph", "mine.json").name == "mine-2.json"
    assert chain.export("graph", tmp_path / "mine.json").name == "mine-3.json"
    assert (tmp_path / "mine.json").read_text() == "precious"
    assert "mine-3.json" in chain.state.status
    assert free_path(tmp_path / "mine-2.json") == tmp_path / "mine-2-2.json"


def test_the_trade_off_curve_is_a_sweep_file(chain: Any) -> None:
    assert reasons(chain)["sweep"] or chain.state.frontier is not None
    chain.state.frontier = Frontier(chain.state.graph, (chain.solution,))
    assert reasons(chain)["sweep"] == ""
    loaded = Frontier.load(chain.export("sweep"), chain.state.graph)
    assert [point.cost for point in loaded.points] == [chain.solution.cost]


def test_the_report_is_written_in_the_background(chain: Any) -> None:
    path = chain.export("report")
    assert chain.wait(60)
    assert path.name == "linear8-report.html"
    assert "A training step of linear8 fits into 4 B" in path.read_text(encoding="utf-8")
    assert "Saved linear8-report.html" in chain.state.status


def test_after_an_infeasible_budget_the_report_is_about_the_schedule_on_the_screen(chain: Any) -> None:
    chain.state.budget = 2
    chain.solve()
    assert chain.wait(60)
    assert chain.state.answer.schedule is None
    path = chain.export("report")
    assert chain.wait(60)
    assert "fits into" in path.read_text(encoding="utf-8")


def test_an_execution_is_exported_as_a_trace_and_in_the_report(executed: Any, tmp_path: Path) -> None:
    trace = json.loads(executed.export("trace", tmp_path / "trace.json").read_text())
    assert any(event["ph"] == "X" for event in trace["traceEvents"])
    path = executed.export("report", tmp_path / "report.html")
    assert executed.wait(60)
    assert "with the gradients of plain PyTorch bit for bit" in path.read_text(encoding="utf-8")
    assert report_origin(executed.state).kind == "module"
    assert str(tmp_path) in executed.state.status  # outside of the working directory the whole path is said


@pytest.mark.parametrize(
    ("kind", "message"),
    [("trace", "execute the schedule first"), ("snapshot", "on CUDA only"), ("sweep", "no trade-off curve yet")],
)
def test_what_is_missing_is_said(chain: Any, kind: str, message: str) -> None:
    chain.state.frontier = None
    assert message in reasons(chain)[kind]
    with pytest.raises(RematError, match=message):
        chain.export(kind)


def test_an_unknown_kind_names_near_ones(chain: Any) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'report'"):
        chain.export("raport")


def test_a_folder_that_is_not_there_is_an_error_in_words(chain: Any) -> None:
    with pytest.raises(RematError, match="cannot be written: No such file or directory"):
        chain.export("graph", "no/such/folder/graph.json")
    path = chain.export("report", "no/such/folder/report.html")
    assert chain.wait(60)
    assert chain.state.tone == "error"
    assert not path.exists()


def test_a_picture_of_the_browser_is_written_where_it_was_asked_for(chain: Any) -> None:
    sent: list[Any] = []
    chain._export.widget.send = lambda message, buffers=None: sent.append((message, buffers))
    path = chain.export("plots-svg")
    assert sent == [({"do": "picture", "kind": "plots-svg", "name": "linear8-plots.svg", "download": False}, None)]
    assert not path.exists()
    chain._export._heard(None, {"did": "picture", "kind": "plots-svg"}, [b"<svg/>"])
    assert path.read_bytes() == b"<svg/>"


def test_a_download_comes_in_parts_that_make_the_file(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr("remat_explorer.explorer.export.CHUNK", 100)
    chain._export.widget.send = lambda message, buffers=None: sent.append((message, buffers))
    chain._export._heard(None, {"did": "choose", "kind": "solution", "download": True}, [])
    content = b"".join(buffers[0] for _, buffers in sent)
    assert len(sent) > 2
    assert [message["part"] for message, _ in sent] == list(range(len(sent)))
    assert json.loads(content) == json.loads(json.dumps(chain.solution.to_document()))


def test_every_kind_is_in_the_menu(chain: Any) -> None:
    assert list(reasons(chain)) == list(EXPORTS)
    assert all(label for _, label, _ in chain._export.widget.entries)
