"""`max-batch` and `minimum-budget`, as a shell sees them."""

import json

import pytest

from remat_explorer.checker import check
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.solvers import scale_batch
from remat_explorer.solvers.solution import Solution
from tests.project.shell import run


def test_a_graph_of_figure_6_is_settled_by_the_rule(capsys, data):
    path = str(data / "graphs" / "keras_vgg_unet.json")
    code, out, _ = run(capsys, "max-batch", path, "--memory", "16 GB", "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["batch"], answer["upper_bound"], answer["optimal"], answer["measured"]) == (61, 61, True, False)
    assert answer["cost"] <= answer["cost_limit"]
    assert answer["peak"] <= answer["memory"] == 16 * 10**9


def test_a_schedule_that_is_written_loads_again_for_the_graph_at_its_batch(capsys, chain, tmp_path):
    target = tmp_path / "schedule.json"
    arguments = ("--memory", "30", "--overhead-limit", "none", "-o", str(target))
    code, out, _ = run(capsys, "max-batch", chain, *arguments)
    assert code == 0
    assert "batch 10, proven to be the largest" in out
    schedule = Solution.load(target, scale_batch(linear(8), 10)).schedule
    assert schedule is not None
    assert check(schedule.graph, schedule.R, schedule.S, 30).peak == 30


def test_a_second_graph_file_tells_what_grows(capsys, chain, tmp_path):
    larger = tmp_path / "larger.json"
    scale_batch(linear(8), 5).save(str(larger))
    arguments = ("--memory", "90", "--larger", str(larger), "--batches", "1", "5", "--json")
    code, out, _ = run(capsys, "max-batch", chain, *arguments)
    assert code in (0, 3)
    assert json.loads(out)["measured"] is True
    assert json.loads(out)["batch"] == 18


def test_a_model_is_captured_at_several_batches(capsys):
    code, out, _ = run(capsys, "max-batch", "mlp", "--memory", "64 MB", "--time-limit", "20", "--json")
    answer = json.loads(out)
    assert code in (0, 3)
    assert answer["measured"] is True
    assert 0 < answer["checkpoint_all_batch"] <= answer["batch"] <= answer["upper_bound"]


def test_the_largest_image_is_a_multiple_of_the_step(capsys, tmp_path):
    target = tmp_path / "schedule.json"
    arguments = ("--vary", "image", "--batch", "2", "--step", "64", "--memory", "200 MB", "--time-limit", "20")
    code, out, _ = run(capsys, "max-batch", "residual_net", *arguments, "-o", str(target), "--json")
    answer = json.loads(out)
    assert code in (0, 3)
    assert answer["side"] % 64 == 0
    assert answer["answers"][str(answer["side"])] == "feasible"
    assert answer["upper_bound"] >= answer["side"] > 0
    assert json.loads(target.read_text())["peak"] <= 200 * 10**6


def test_a_memory_that_holds_no_example_is_infeasible(capsys, chain):
    code, out, _ = run(capsys, "max-batch", chain, "--memory", "2")
    assert code == 2
    assert "not even one example fits into 2 B: 'v9' alone needs more" in out


def test_the_smallest_budget_is_proven_and_explained(capsys, chain):
    code, out, _ = run(capsys, "minimum-budget", chain)
    assert code == 0
    assert "'v9' alone needs 3 B" in out
    assert "a schedule for it is known, and it is the smallest" in out
    assert "v7 (1 B), v8 (1 B), v9 (1 B)" in out


def test_the_smallest_budget_as_json_names_operations_and_values(capsys, data):
    path = str(data / "captured" / "vgg16.json")
    graph = Graph.load(path)
    code, out, _ = run(capsys, "minimum-budget", path, "--json")
    answer = json.loads(out)
    assert code == (0 if answer["proven"] else 3)
    assert answer["lower_bound"] <= answer["known_feasible"] <= answer["checkpoint_all_peak"]
    sizes = {value.name: value.bytes for value in graph.values}
    assert sum(sizes[name] for name in answer["alive"]) + graph.resident_bytes <= answer["known_feasible"]
    assert {answer["operation"], answer["stage"]} <= {node.name for node in graph.operations}


def test_the_least_memory_at_a_limited_overhead_is_found_and_its_schedule_written(capsys, chain, tmp_path):
    target = tmp_path / "least.json"
    code, out, _ = run(capsys, "minimum-budget", chain, "--overhead", "53%", "-o", str(target))
    assert code == 0
    assert "40.0 % of eager's 10 B at overhead +53.0 %, at least 40.0 % proven" in out
    assert json.loads(target.read_text())["peak"] == 4
    code, out, _ = run(capsys, "minimum-budget", chain, "--overhead", "0.53", "--json")
    answer = json.loads(out)
    assert (answer["peak"], answer["lower_bound"], answer["cost"], answer["strategy"]) == (4, 4, 26.0, "optimal")


def test_the_schedule_of_the_smallest_budget_can_be_written(capsys, chain, tmp_path):
    target = tmp_path / "least.json"
    code, out, _ = run(capsys, "minimum-budget", chain, "-o", str(target))
    assert code == 0
    assert f"written to {target}" in out
    assert json.loads(target.read_text())["peak"] == 3


@pytest.mark.parametrize("text", ["much", "-1", "10%%", "nan"])
def test_what_is_no_overhead_is_refused(capsys, chain, text):
    code, _, err = run(capsys, "minimum-budget", chain, f"--overhead={text}")
    assert code == 64
    assert f"{text!r} is no overhead; write 10% or 0.1" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CHAIN", "--memory", "lots"], "'lots' is not a number of bytes"),
        (["CHAIN", "--memory", "9", "--overhead-limit", "some"], "'some' is no limit on the overhead"),
        (["CHAIN", "--memory", "9", "--vary", "image"], "--vary image does not apply to"),
        (["CHAIN", "--memory", "9", "--batch", "3"], "--batch 3 contradicts --vary batch"),
        (["CHAIN", "--memory", "9", "--solver", "hihgs"], "did you mean 'highs'"),
        (["CHAIN", "--memory", "9", "--larger", "CHAIN"], "nothing of 'linear8' grows with the batch"),
        (["mlp", "--memory", "9", "--larger", "CHAIN"], "--larger does not apply here: it goes with a graph file"),
        (["mlp", "--memory", "9", "--step", "8"], "--step does not apply here: it goes with --vary image"),
        (["net.py:make", "--memory", "1 GB"], "chooses its own inputs, so its batch cannot be varied"),
        (["CHAIN"], "required: --memory"),
    ],
)
def test_bad_input_leaves_with_64_and_quotes_it(capsys, chain, arguments, message):
    code, out, err = run(capsys, "max-batch", *[chain if argument == "CHAIN" else argument for argument in arguments])
    assert (code, out) == (64, "")
    assert message in err
