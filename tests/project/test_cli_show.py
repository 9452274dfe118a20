"""`remat-explorer show`: what a graph holds, as text and as JSON."""

import json
import subprocess
import sys

import pytest

from remat_explorer.cli import main
from remat_explorer.graph import Graph
from remat_explorer.solvers import checkpoint_all_peak


@pytest.fixture
def unet(data) -> str:
    return str(data / "captured" / "unet.json")


def test_json_has_the_numbers_of_the_graph(capsys, unet):
    assert main(["show", unet, "--top", "3", "--json"]) == 0
    shown, graph = json.loads(capsys.readouterr().out), Graph.load(unet)
    summary = graph.summary()
    assert (shown["sha256"], shown["operations"], shown["values"]) == (graph.sha256, graph.n, len(graph.values))
    assert shown["checkpoint_all_peak"] == checkpoint_all_peak(graph)
    assert shown["feature_bytes"] == summary.feature_bytes
    assert shown["gradient_bytes"] == summary.gradient_bytes
    assert shown["articulation_points"] == list(graph.articulation_points())
    assert [entry["bytes"] for entry in shown["heaviest_values"]] == sorted(graph.value_bytes)[: -3 - 1 : -1]
    assert [entry["cost"] for entry in shown["costliest_operations"]] == sorted(graph.costs)[: -3 - 1 : -1]
    for entry in shown["heaviest_values"]:
        assert graph.values[entry["value"]].name == entry["name"]
        assert entry["value"] in graph.outputs(entry["operation"])


def test_text_shares_memory_between_the_four_parts_of_checkmates_figure_3(capsys, unet):
    assert main(["show", unet, "--top", "2"]) == 0
    head, memory, values, operations = capsys.readouterr().out.strip().split("\n\n")
    assert "106 operations (33 forward, 73 backward), 134 values" in head
    rows = memory.splitlines()[1:]
    starts = ("resident (parameters, inputs, buffers)", "parameter gradients", "features", "largest workspace")
    assert all(row.startswith(start) for row, start in zip(rows, starts, strict=True))
    shares = [float(row.split("%")[0].split()[-1]) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert rows[2].count("#") > rows[0].count("#")
    assert len(values.splitlines()) == len(operations.splitlines()) == 3


def test_more_rows_than_there_are_shows_all(capsys, data):
    assert main(["show", str(data / "graphs" / "linear2.json"), "--top", "99", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["heaviest_values"]) == len(shown["costliest_operations"]) == 5


def test_a_model_of_the_zoo_is_captured_and_shown(capsys):
    assert main(["show", "mlp", "--batch", "4", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["gradient_bytes"] == 4 * 1_982_986
    assert shown["resident_bytes"] >= 4 * 1_982_986


def test_a_reader_that_leaves_early_is_no_error(unet):
    command = [sys.executable, "-m", "remat_explorer.cli", "show", unet]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 0
