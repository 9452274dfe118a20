import json
import subprocess
import sys

import pytest
import torch

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.cli import main
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import STRATEGIES, checkpoint_all_peak
from remat_explorer.solvers.solution import Solution
from tests.project.shell import run
from tests.thorough import thorough_but

pytestmark = pytest.mark.usefixtures("kept_workers")

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")


@pytest.mark.parametrize("strategy", thorough_but(["checkmate-ilp", "optimal"], "optimal"))
def test_the_eight_layer_chain_at_budget_4_costs_26_and_the_solution_loads_again(capsys, chain, strategy, tmp_path):
    target = tmp_path / "solution.json"
    code, out, _ = run(capsys, "solve", chain, "--budget", "4", "--strategy", strategy, "--json", "-o", str(target))
    answer = json.loads(out)
    assert code == 0
    assert (answer["status"], answer["cost"], answer["lower_bound"], answer["peak"]) == ("optimal", 26, 26, 4)
    assert Solution.load(target, linear(8)).cost == 26


def test_what_is_infeasible_names_the_smallest_budget_and_keeps_the_file_that_was_there(capsys, chain, tmp_path):
    target = tmp_path / "solution.json"
    target.write_text("before")
    code, out, _ = run(capsys, "solve", chain, "--budget", "2", "-o", str(target))
    assert code == 2
    assert "'v9'" in out
    assert "3 B" in out
    assert target.read_text() == "before"
    code, out, _ = run(capsys, "solve", chain, "--budget", "2", "--json")
    answer = json.loads(out)
    assert (code, answer["status"], answer["minimum_budget"]["lower_bound"]) == (2, "infeasible", 3)


def test_capture_takes_costs_from_the_named_device(capsys, tmp_path):
    costs = {}
    for device in ("cpu", "a100"):
        target = str(tmp_path / f"{device}.json")
        assert run(capsys, "capture", "mlp", "--batch", "8", "--costs", device, "-o", target)[0] == 0
        costs[device] = Graph.load(target).total_cost
    assert costs["a100"] != costs["cpu"]


@NO_GPU
def test_capture_for_cuda_needs_no_device(capsys, tmp_path):
    target = tmp_path / "graph.json"
    given = ["capture", "residual_net", "--batch", "2", "--image", "32", "--device", "cuda", "-o", str(target)]
    code, out, _ = run(capsys, *given, "--costs", "H100")
    assert code == 0
    assert "those of sm_90, by PyTorch's rules" in out
    code, out, _ = run(capsys, *given, "--json")
    assert (code, json.loads(out)["kernels"]) == (0, "sm_80")
    assert run(capsys, "solve", str(target), "--budget", "100%", "--strategy", "checkpoint-all")[0] == 0


@NO_GPU
def test_a_model_of_a_file_is_captured_for_cuda_without_a_device_and_does_not_run_there(capsys, tmp_path):
    made = "torch.nn.LSTM(4, 4), (torch.ones(3, 2, 4),), {}, lambda output: output[0].sum()"
    (tmp_path / "net.py").write_text(f"import torch\ndef make():\n    return {made}\n")
    model, target = f"{tmp_path / 'net.py'}:make", tmp_path / "graph.json"
    assert run(capsys, "capture", model, "--device", "cuda", "-o", str(target))[0] == 0
    names = [node.name for node in Graph.load(target).operations if node.phase == "forward"]
    assert sum("lstm_cell" in name for name in names) == 3
    for executed in (model, "mlp"):
        code, _, err = run(capsys, "run", executed, "--budget", "90%", "--device", "cuda")
        assert code == 64
        assert "torch finds no CUDA device here" in err


def test_capture_writes_a_graph_file_and_passes_its_options_on(capsys, tmp_path):
    plain, path = tmp_path / "plain.json", tmp_path / "graph.json"
    code, out, _ = run(capsys, "capture", "mlp", "--batch", "4", "-o", str(plain), "--json")
    assert code == 0
    assert json.loads(out)["operations"] == Graph.load(plain).n > 5
    assert json.loads(out)["sha256"] == Graph.load(plain).sha256
    options = ["--optimizer", "adam", "--no-contract", "--no-split-convolution-backward"]
    assert main(["capture", "mlp", "--batch", "4", *options, "-o", str(path)]) == 0
    first, second = Graph.load(str(plain)), Graph.load(str(path))
    assert first.name == "mlp"
    assert second.options == CaptureOptions(False, False, "adam")
    assert second.resident_bytes - first.resident_bytes == 2 * 4 * 1_982_986 + 4 * 16
    assert second.n > first.n


def test_models_lists_every_model_with_its_size(capsys):
    code, out, _ = run(capsys, "models")
    assert code == 0
    told = [" ".join(line.split()) for line in out.splitlines()]
    assert {"vgg16 batch 256, 224 x 224 pixels", "llama3_8b batch 1, 8192 tokens, 32 layers"} <= set(told)
    code, out, _ = run(capsys, "models", "--json")
    assert code == 0
    listed = json.loads(out)["models"]
    assert listed["unet"] == {"batch": 32, "image": [416, 608], "sequence": None, "layers": None, "tied": None}
    assert listed["llama3_8b"] == {"batch": 1, "image": None, "sequence": 8192, "layers": 32, "tied": False}


def test_run_prints_prediction_and_measurement_side_by_side_and_writes_a_trace(capsys, tmp_path):
    arguments = ["residual_net", "--batch", "4", "--budget", "70%", "--device", "cpu", "--time-limit", "2"]
    trace = tmp_path / "trace.json"
    code, out, _ = run(capsys, "run", *arguments, "--repeats", "1", "--refresh", "--trace", str(trace))
    assert code == 0
    assert "predicted" in out
    assert "measured" in out
    assert "gradients equal: max difference 0" in out
    assert json.loads(trace.read_text())["traceEvents"]


def test_strategies_are_told_as_in_table_1_each_with_a_sentence_and_as_data(capsys):
    code, out, _ = run(capsys, "strategies")
    assert code == 0
    for name, method in STRATEGIES.items():
        (sentence,) = (line for line in out.splitlines() if line.startswith(f"{name}: "))
        assert method.summary in sentence
        assert method.source in sentence
    cells = {line.split()[0]: line.split()[1:] for line in out.split("\n\n")[0].splitlines()}
    assert list(cells) == ["strategy", *STRATEGIES]
    assert cells["checkpoint-all"][:3] == ["yes", "no", "no"]
    assert cells["pytorch-budget"] == ["yes", "yes", "partly", "activation_memory_budget", "knapsack"]
    code, out, _ = run(capsys, "strategies", "--json")
    listed = json.loads(out)["strategies"]
    assert code == 0
    assert list(listed) == list(STRATEGIES)
    sequential = listed["checkpoint-sequential"]
    assert (sequential["general_graphs"], sequential["knob"], sequential["options"]) == ("partly", "segments", [])


@pytest.fixture
def unet(data) -> str:
    return str(data / "captured" / "unet.json")


def test_show_has_the_numbers_of_the_graph_as_json(capsys, unet):
    assert main(["show", unet, "--top", "3", "--json"]) == 0
    shown, graph = json.loads(capsys.readouterr().out), Graph.load(unet)
    assert (shown["sha256"], shown["operations"], shown["values"]) == (graph.sha256, graph.n, len(graph.values))
    assert shown["checkpoint_all_peak"] == checkpoint_all_peak(graph)
    assert shown["feature_bytes"] == graph.summary().feature_bytes
    assert shown["articulation_points"] == list(graph.articulation_points())
    assert [entry["bytes"] for entry in shown["heaviest_values"]] == sorted(graph.value_bytes)[: -3 - 1 : -1]
    assert [entry["cost"] for entry in shown["costliest_operations"]] == sorted(graph.costs)[: -3 - 1 : -1]
    assert all(graph.values[entry["value"]].name == entry["name"] for entry in shown["heaviest_values"])


def test_show_shares_memory_between_the_four_parts_of_checkmates_figure_3(capsys, unet):
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


def test_a_reader_that_leaves_early_is_no_error(unet):
    command = [sys.executable, "-m", "remat_explorer.cli", "show", unet]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(240) == 0
