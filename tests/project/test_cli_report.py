"""`remat-explorer report`: what it writes, prints and leaves with."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from remat_explorer.cli import main
from remat_explorer.cli.parser import make_parser
from tests.project.shell import run

MODEL = """
import torch

def make_model():
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers), (torch.randn(512, 64),), {}, lambda out: out.square().mean()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and working directory for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_graph_file_is_solved_and_reported(capsys, chain, folder):
    code, out, _ = run(capsys, "report", chain, "--budget", "4", "-o", "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert code == 0
    assert "written to report.html" in out
    assert "The schedule is proven optimal" in page
    assert "linear8.json" in page
    assert str(Path(chain).parent) not in page
    assert "not executed" in page


def test_an_infeasible_budget_is_a_report_and_leaves_with_2(capsys, chain, folder):
    code, out, _ = run(capsys, "report", chain, "--budget", "2", "-o", "report.html", "--json")
    assert code == 2
    assert json.loads(out)["status"] == "infeasible"
    assert "There is no schedule of linear8 within 2 B" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_model_is_executed_and_validated(capsys, folder):
    (folder / "net.py").write_text(MODEL)
    arguments = ["--budget", "90%", "--execute", "--device", "cpu", "--repeats", "1", "-o", "report.html", "--json"]
    code, out, _ = run(capsys, "report", "net.py:make_model", *arguments)
    shown = json.loads(out)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert code == 0
    assert shown["measurement"]["gradients_equal"]
    assert "with the gradients of plain PyTorch bit for bit" in page
    assert "from net import make_model" in page
    assert "measured on cpu" in page


def test_a_sweep_is_made_where_it_is_asked_for(capsys, chain, monkeypatch):
    given = {}
    monkeypatch.setattr("remat_explorer.report", lambda solution, path, **more: given.update(more) or Path(path))
    assert main(["report", chain, "--budget", "4", "--sweep", "3", "-o", "report.html"]) == 0
    assert len(given["frontier"].points) >= 2
    assert given["history"]
    capsys.readouterr()


def test_a_browser_is_opened_only_when_asked(capsys, chain, folder, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr("remat_explorer.cli.execution.webbrowser.open", opened.append)
    main(["report", chain, "--budget", "4", "-o", "report.html"])
    assert opened == []
    main(["report", chain, "--budget", "4", "-o", "report.html", "--open"])
    assert opened == [(folder / "report.html").as_uri()]
    capsys.readouterr()


def test_the_options_of_solve_are_options_of_report():
    text = (
        "report vgg16 --batch 4 --image 64 --costs A100 --optimizer adam --budget 60% --strategy checkmate-ilp "
        "--option splits=2 --time-limit 5 --solver cbc --threads 1 --no-cache --sweep -o x.html"
    )
    options = make_parser().parse_args(shlex.split(text))
    assert (options.batch, options.strategy, options.time_limit, options.sweep) == (4, "checkmate-ilp", 5.0, 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "4"], "-o/--output"),
        (["--budget", "4", "-o", "no/such/folder/report.html"], "No such file or directory"),
        (["--budget", "4", "-o", "report.html", "--execute"], "is a graph file, which has no model to run"),
        (["--budget", "much", "-o", "report.html"], "'much'"),
    ],
)
def test_bad_input_leaves_with_64_and_quotes_it(capsys, chain, folder, arguments, message):
    code, _, err = run(capsys, "report", chain, *arguments)
    assert code == 64
    assert message in err
    assert not (folder / "report.html").exists()
