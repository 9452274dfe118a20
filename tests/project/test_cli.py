"""The command line: exit codes, messages and JSON, as a shell sees them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from remat_explorer.capture_options import CaptureOptions
from remat_explorer.cli import main
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers.solution import Solution
from tests.project.shell import run
from tests.thorough import thorough_but

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")


@pytest.mark.parametrize("strategy", thorough_but(["checkmate-ilp", "optimal"], "optimal"))
def test_the_eight_layer_chain_at_budget_4_costs_26(capsys, chain, strategy):
    code, out, _ = run(capsys, "solve", chain, "--budget", "4", "--strategy", strategy, "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["status"], answer["cost"], answer["lower_bound"], answer["peak"]) == ("optimal", 26, 26, 4)


def test_solve_writes_a_solution_that_loads_again(capsys, chain, tmp_path):
    code, out, _ = run(capsys, "solve", chain, "--budget", "5", "-o", str(tmp_path / "solution.json"))
    assert code == 0
    assert "optimal" in out
    assert Solution.load(tmp_path / "solution.json", linear(8)).cost == 22


def test_a_budget_below_the_largest_operation_is_infeasible_and_named(capsys, chain):
    code, out, _ = run(capsys, "solve", chain, "--budget", "2")
    assert code == 2
    assert "'v9'" in out
    assert "3 B" in out


def test_checkpoint_all_that_does_not_fit_points_to_a_strategy_that_does(capsys, chain):
    code, out, _ = run(capsys, "solve", chain, "--budget", "5", "--strategy", "checkpoint-all")
    assert code == 2
    assert "try the strategy 'optimal'" in out


def test_an_infeasible_solve_keeps_the_solution_that_was_there(capsys, chain, tmp_path):
    target = tmp_path / "solution.json"
    run(capsys, "solve", chain, "--budget", "4", "-o", str(target))
    before = target.read_text()
    assert run(capsys, "solve", chain, "--budget", "2", "-o", str(target))[0] == 2
    assert target.read_text() == before


def test_an_infeasible_answer_in_json_names_the_smallest_budget(capsys, chain):
    code, out, _ = run(capsys, "solve", chain, "--budget", "2", "--json")
    answer = json.loads(out)
    assert code == 2
    assert answer["status"] == "infeasible"
    assert answer["minimum_budget"]["lower_bound"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "vg16", "--budget", "60%"], "unknown model 'vg16'; did you mean 'vgg16'"),
        (["solve", "linear8", "--budget", "4"], "unknown model 'linear8'"),
        (["capture", "resnt", "-o", "x.json"], "unknown model 'resnt'"),
        (["capture", "CHAIN", "-o", "x.json"], "is a graph file, which has no model to run or capture"),
        (["capture", "mlp", "-o", "x.json", "--costs", "A10"], "unknown device 'A10'; did you mean 'A100'"),
        (["run", "CHAIN", "--budget", "4"], "give a model's name or path/to/file.py:function"),
        (["show", "CHAIN", "--costs", "A100"], "--costs A100 does not apply to"),
        (["solve", "CHAIN", "--budget", "4", "--batch", "2"], "a graph file has its sizes and costs already"),
        (["show", "CHAIN", "--top", "0"], "'0' is not a whole number"),
        (["solve", "CHAIN", "--budget", "four"], "'four' is not a number of bytes"),
        (["solve", "CHAIN", "--budget", "4", "--strategy", "optimall"], "did you mean 'optimal'"),
        (["solve", "CHAIN", "--budget", "4", "--solver", "hihgs"], "did you mean 'highs'"),
        (["solve", "missing.json", "--budget", "4"], "cannot read 'missing.json'"),
        (["solve", "CHAIN", "--budget", "4", "-o", "no/such/folder/x.json"], "No such file or directory"),
        (["run", "mlp", "--budget", "70%", "--batch", "0"], "'0' is not a whole number"),
        (["solve", "CHAIN"], "required: --budget"),
        (["explode"], "invalid choice: 'explode'"),
    ],
)
def test_bad_input_leaves_with_64_and_quotes_it(capsys, chain, arguments, message):
    code, out, err = run(capsys, *[chain if argument == "CHAIN" else argument for argument in arguments])
    assert code == 64
    assert message in err
    assert out == ""
    assert "Traceback" not in err


def cycle(document):
    document["operations"][3]["implementations"][0]["inputs"] = [5]


def missing_key(document):
    del document["operations"][3]["phase"]


def negative_size(document):
    document["values"][3]["bytes"] = -8


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cycle, "'v3' (number 3) reads 'v5'"),
        (missing_key, """operation 3 lacks the key 'phase': {"name": "v3\""""),
        (negative_size, """{"name": "v3", "bytes": -8, "persistent": false}"""),
    ],
)
def test_a_broken_graph_file_leaves_with_64_and_the_entry(capsys, chain, tmp_path, damage, message):
    document = json.loads(Path(chain).read_text())
    damage(document)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))
    code, out, err = run(capsys, "solve", str(path), "--budget", "4")
    assert (code, out) == (64, "")
    assert message in err
    assert "Traceback" not in err


def test_a_device_that_is_not_there_leaves_with_64(capsys):
    code, _, err = run(capsys, "run", "mlp", "--budget", "90%", "--device", "gpu7")
    assert code == 64
    assert "'gpu7' is not a device" in err


def test_capture_writes_a_graph_file(capsys, tmp_path):
    target = tmp_path / "mlp.json"
    code, out, _ = run(capsys, "capture", "mlp", "--batch", "8", "-o", str(target), "--json")
    assert code == 0
    graph = Graph.load(target)
    assert json.loads(out)["operations"] == graph.n > 5
    assert json.loads(out)["sha256"] == graph.sha256


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
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "def make():\n"
        "    return torch.nn.LSTM(4, 4), (torch.ones(3, 2, 4),), {}, lambda output: output[0].sum()\n"
    )
    model, target = f"{tmp_path / 'net.py'}:make", tmp_path / "graph.json"
    assert run(capsys, "capture", model, "--device", "cuda", "-o", str(target))[0] == 0
    names = [node.name for node in Graph.load(target).operations if node.phase == "forward"]
    assert sum("lstm_cell" in name for name in names) == 3
    for executed in (model, "mlp"):
        code, _, err = run(capsys, "run", executed, "--budget", "90%", "--device", "cuda")
        assert code == 64
        assert "torch finds no CUDA device here" in err


def test_capture_passes_its_options_on(capsys, tmp_path):
    plain, path = tmp_path / "plain.json", tmp_path / "graph.json"
    assert main(["capture", "mlp", "--batch", "4", "-o", str(plain)]) == 0
    options = ["--optimizer", "adam", "--no-contract", "--no-split-convolution-backward"]
    assert main(["capture", "mlp", "--batch", "4", *options, "-o", str(path)]) == 0
    first, second = Graph.load(str(plain)), Graph.load(str(path))
    assert first.name == "mlp"
    assert second.options == CaptureOptions(False, False, "adam")
    assert second.resident_bytes - first.resident_bytes == 2 * 4 * 1_982_986 + 4 * 16
    assert second.n > first.n


def test_options_of_a_capture_do_not_apply_to_a_graph_file(capsys, chain):
    assert main(["solve", chain, "--budget", "4", "--no-contract"]) == 64
    assert f"--no-contract does not apply to {chain!r}" in capsys.readouterr().err


def test_models_lists_every_model_with_its_size(capsys):
    code, out, _ = run(capsys, "models")
    assert code == 0
    for line in (
        "vgg16 batch 256, 224 x 224 pixels",
        "gpt2 batch 512, 1024 tokens",
        "mlp batch 128",
        "llama3_8b batch 1, 8192 tokens, 32 layers",
    ):
        assert line in [" ".join(listed.split()) for listed in out.splitlines()]


def test_models_as_json_has_batch_image_and_sequence(capsys):
    code, out, _ = run(capsys, "models", "--json")
    assert code == 0
    listed = json.loads(out)["models"]
    assert listed["unet"] == {"batch": 32, "image": [416, 608], "sequence": None, "layers": None, "tied": None}
    assert listed["llama3_8b"] == {"batch": 1, "image": None, "sequence": 8192, "layers": 32, "tied": False}


def test_capture_takes_a_sequence_and_refuses_it_for_images(capsys, tmp_path):
    target = str(tmp_path / "graph.json")
    code, _, err = run(capsys, "capture", "vgg16", "--sequence", "16", "-o", target)
    assert code == 64
    assert "'vgg16' takes no sequences" in err
    code, _, _ = run(capsys, "capture", "gpt2", "--batch", "2", "--sequence", "16", "-o", target)
    assert code == 0
    assert max(value.bytes for value in Graph.load(target).values) == 50257 * 768 * 4  # the embedding's gradient


def test_run_prints_prediction_and_measurement_side_by_side(capsys):
    arguments = ["residual_net", "--batch", "16", "--budget", "70%", "--device", "cpu", "--time-limit", "10"]
    code, out, _ = run(capsys, "run", *arguments, "--repeats", "1", "--refresh")
    assert code == 0
    assert "predicted" in out
    assert "measured" in out
    assert "gradients equal: max difference 0" in out


def test_help_shows_examples_and_exit_codes(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert 'remat-explorer solve unet --budget "8 GiB"' in out
    assert "2 infeasible" in out


def test_run_writes_a_trace(capsys, tmp_path):
    arguments = ("mlp", "--batch", "64", "--budget", "100%", "--device", "cpu", "--repeats", "1")
    code, _, _ = run(capsys, "run", *arguments, "--trace", str(tmp_path / "trace.json"))
    assert code == 0
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_snapshot_on_the_cpu_leaves_with_64_before_anything_runs(capsys, tmp_path):
    arguments = ("mlp", "--batch", "64", "--budget", "100%", "--device", "cpu")
    code, _, err = run(capsys, "run", *arguments, "--snapshot", str(tmp_path / "snapshot.pickle"))
    assert code == 64
    assert "memory snapshots on CUDA only" in err


def test_an_interrupt_that_was_handled_leaves_the_exit_code_whatever_code_it_came_in(tmp_path):
    patched = """
import remat_explorer.cli
def main():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 3
remat_explorer.cli.main = main
"""
    (tmp_path / "sitecustomize.py").write_text(patched)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    command = [sys.executable, "-m", "remat_explorer.cli"]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode == 3
