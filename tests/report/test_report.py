"""A report without a browser: what is in the file, what is not, and that its program and its files work."""

import base64
import dataclasses
import gzip
import hashlib
import html
import json
import os
import re
import socket
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.figures.tradeoff import tradeoff
from remat_explorer.graph import Graph
from remat_explorer.report import Origin
from remat_explorer.report.contents import ReportContents, differences
from remat_explorer.report.sections import numbers, program, validation
from remat_explorer.runtime.comparison import Comparison, Difference, FirstDifference
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import Frontier
from remat_explorer.solvers.solution import Solution
from tests.figures.choices import chain_with_choices
from tests.hostile_names import HARM, hostile

LIMIT = 8_000_000  # bytes


@pytest.fixture(scope="module")
def chain() -> Any:
    return rx.solve(rx.linear(8), budget=4)


@pytest.fixture(scope="module")
def page(chain: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    return rx.report(chain, path, source=Origin("file", "net.py:make_model")).read_text(encoding="utf-8")


def unpacked(page: str, identity: str) -> str:
    found = re.search(rf'<script type="application/gzip" id="{identity}"[^>]*>([^<]*)<', page)
    assert found
    return gzip.decompress(base64.b64decode(found[1])).decode()


def test_the_files_in_the_page_load_back_and_belong_together(chain: Any, page: str, tmp_path: Path) -> None:
    for identity in ("graph-file", "solution-file"):
        (tmp_path / identity).write_text(unpacked(page, identity), encoding="utf-8")
    graph = rx.Graph.load(str(tmp_path / "graph-file"))
    loaded = rx.Solution.load(tmp_path / "solution-file", graph)
    assert graph.sha256 == chain.graph.sha256
    assert (loaded.cost, loaded.peak, loaded.status) == (chain.cost, chain.peak, "optimal")


def test_plotly_is_in_the_page_once_and_nothing_is_fetched(page: str) -> None:
    from plotly.offline import get_plotlyjs

    assert unpacked(page, "plotly") == get_plotlyjs()
    own = re.sub(r'(<script type="application/gzip"[^>]*>)[^<]*', r"\1", page) + unpacked(page, "script")
    assert get_plotlyjs()[:2000] not in own
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=\"(?!data:)", own)
    assert not re.search(r"https?://", own)


def test_neither_host_nor_folders_are_named(page: str, tmp_path: Path) -> None:
    for secret in {str(tmp_path.parent), str(Path.cwd()), str(Path.home()) + os.sep, str(Path(rx.__file__).parent)}:
        assert secret not in page
    if len(socket.gethostname()) > 4:
        assert socket.gethostname() not in page


def digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


class Elements(HTMLParser):
    """Collects the elements of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))


def test_no_name_becomes_an_element_and_only_the_pages_own_scripts_are_allowed(tmp_path: Path) -> None:
    solution = rx.solve(hostile(rx.linear(8)), budget=4)
    page = rx.report(solution, tmp_path / "report.html").read_text(encoding="utf-8")
    found = Elements(page)
    assert {tag for tag, _ in found.tags} & {"img", "iframe", "object", "embed", "form"} == set()
    links = [str(attributes.get("href")) for tag, attributes in found.tags if tag == "a"]
    assert [link for link in links if not link.startswith("#")] == []
    assert not [key for _, attributes in found.tags for key in attributes if key.startswith("on")]
    policies = [attributes["content"] for tag, attributes in found.tags if "http-equiv" in attributes]
    allowed = re.findall(r"'sha256-([^']+)'", str(policies))
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert sum(tag == "script" and not attributes.get("type") for tag, attributes in found.tags) == 1
    assert allowed[0] == digest(script)
    packed = re.findall(r'<script type="application/gzip"[^>]*>([^<]*)</script>', page)
    unpacked = {digest(gzip.decompress(base64.b64decode(text)).decode()) for text in packed}
    assert len(allowed) == 3  # the one that unpacks, plotly and the page's own
    assert set(allowed[1:]) <= unpacked
    assert "default-src 'none'" in str(policies)
    assert HARM not in page
    assert ReportContents(solution).file_name("graph").count("/") == 0


def test_a_thousand_operations_stay_below_the_limit(data: Path, tmp_path: Path) -> None:
    graph = Graph.load(str(data / "captured" / "densenet161.json"))
    solution = rx.solve(graph, budget="100%", strategy="checkpoint-all")
    assert graph.n > 1000
    path = rx.report(solution, tmp_path / "report.html")
    assert path.stat().st_size < LIMIT


def test_implementations_are_in_the_report_where_there_is_a_choice(page: str, tmp_path: Path) -> None:
    assert 'id="section-implementations"' not in page
    graph = chain_with_choices()
    page = rx.report(rx.solve(graph, 3600, "monet"), tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="section-implementations"' in page
    assert "<td>from bits</td>" in page
    assert "<td>equal bit for bit</td>" in page
    assert "<td>differ by at most 1e-06 of their size</td>" in page
    page = rx.report(rx.solve(graph, "100%", "checkpoint-all"), tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Every operation runs with PyTorch&#x27;s own implementation" in page


def test_without_a_schedule_the_report_says_what_the_smallest_budget_is_or_that_time_ran_out(tmp_path: Path) -> None:
    solution = rx.solve(rx.linear(8), budget=2)
    page = rx.report(solution, tmp_path / "report.html").read_text(encoding="utf-8")
    assert solution.status == "infeasible"
    assert "There is no schedule of linear8 within 2 B" in page
    smallest = rx.minimum_budget(solution.graph)
    assert f"The smallest budget worth trying is {smallest.known_feasible} B" in page
    assert 'id="section-schedule"' not in page
    solution = Solution(rx.linear(8), "optimal", Status.UNKNOWN, 4, None, None, 1.0)
    page = rx.report(solution, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "found no schedule of linear8 within 4 B in 1.0 s" in page


def test_an_execution_stands_beside_its_prediction_and_the_program_trains(tmp_path: Path, monkeypatch: Any) -> None:
    net = rx.models.load("residual_net", batch=2)
    graph = rx.profile(net.graph, net.module, net.args)
    solution = rx.solve(graph, budget="90%", time_limit=20)
    measured = rx.measure(solution, net.module, net.args, repeats=1)
    origin = Origin("zoo", "residual_net", batch=2, image=net.image, device="cpu", costs="measured on cpu")
    path = rx.report(solution, tmp_path / "report.html", measurement=measured, source=origin)
    page = path.read_text(encoding="utf-8")
    assert "with the gradients of plain PyTorch bit for bit" in page
    assert "not executed" not in page
    assert page.count("PyTorch&#x27;s allocator on a GPU") == 2  # predicted with the schedule, and with the execution

    contents = ReportContents(solution, origin=origin)
    for what in ("graph", "solution"):
        (tmp_path / contents.file_name(what)).write_text(unpacked(page, f"{what}-file"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(program(contents), names)
    assert names["trained"].rematerialization.solution.strategy == "optimal"
    assert all(parameter.grad is not None for parameter in names["net"].module.parameters())


def test_results_that_differ_stand_there_with_their_size_and_where_it_begins() -> None:
    model, args = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), (torch.ones(2, 4),)
    solution = rx.solve(rx.capture(model, args), budget="100%")
    measured = rx.measure(solution, model, args, device="cpu", repeats=1)
    assert measured.eager is not None
    assert "where it differs" not in validation(ReportContents(solution, measurement=measured))
    differences = (Difference("gradient", "0.bias", "float32", 2.1e-7, 2.1e-7, 1.77, 1.77),)
    begins = FirstDifference(3, "1 tanh_backward", "backward", "1", "tanh_backward", "net.py:42", repeats=True)
    compared = Comparison(0.0, 2.1e-7, False, True, True, differences, 2, 0, begins)
    different = dataclasses.replace(measured, eager=dataclasses.replace(measured.eager, comparison=compared))
    shown = html.unescape(validation(ReportContents(solution, measurement=different)))
    assert "DIFFER in 1 of 2, by at most 2.1e-07 (1.8 units of float32's rounding) in '0.bias'" in shown
    assert "the difference begins at '1 tanh_backward' (backward, net.py:42)" in shown


def test_differences_of_two_figures_lead_from_one_to_the_other() -> None:
    old = {"data": [{"x": [1, 2], "line": {"color": "a"}}], "layout": {"title": None}}
    new = {"data": [{"x": [1, 2, 3], "line": {"color": "b"}}], "layout": {"title": {"text": "t"}}}
    patched = json.loads(json.dumps(old))
    for path, value in differences(old, new):
        holder = patched
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
    assert patched == new


def test_costs_have_the_unit_that_is_known(chain: Any) -> None:
    assert "<td>26 in the graph's unit (+52.9 %)</td>" in numbers(ReportContents(chain)).replace("&#x27;", "'")
    captured = ReportContents(chain, origin=Origin("zoo", "chain"))
    assert "<td>26.0 s (+52.9 %)</td>" in numbers(captured)
    assert "<td>26.0 s</td>" in numbers(captured)  # the bound, which proves it


def test_the_curve_of_the_report_shows_what_its_solution_proves(chain: Any) -> None:
    unproven = dataclasses.replace(chain, status=Status.FEASIBLE, lower_bound=None)
    swept = Frontier(chain.graph, (unproven,))
    curve = ReportContents(chain, frontier=swept).curve
    assert curve is not None
    figures: list[Any] = [tradeoff(swept), tradeoff(curve)]
    symbols = [next(line.marker.symbol for line in one.data if line.name == "optimal") for one in figures]
    assert symbols == [("circle-open",), ("circle",)]
