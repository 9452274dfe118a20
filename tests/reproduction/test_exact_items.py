"""Items that depend on no machine are exact, and published figures that do not hold are explained by arithmetic."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from remat_explorer.course import EXERCISES
from remat_explorer.documents import unpack_rows
from remat_explorer.errors import ScheduleError
from remat_explorer.instances import linear
from remat_explorer.models.segmentation_nets import FCN8
from remat_explorer.solvers.methods.chen import articulation_split_points, chain_points, every_sqrt_n, greedy
from reproduction import ITEMS
from reproduction.checkmate_largest_batch import (
    best_rule,
    kept_for_good_peak,
    largest_batch,
    peak_of_stages,
    published_sqrt_n_checkpoints,
    segment_stages,
)
from reproduction.checkmate_program import SECTION_4_6_SECONDS
from reproduction.layer_graphs import DATA, LAYERS, Layer, layer_graph, training_graph

MEMORY = 16 * 10**9


@pytest.fixture(scope="module")
def figure_6() -> dict[str, Any]:
    outcome = ITEMS["checkmate-figure-6"].run("small")
    assert outcome.complete
    return {row["network"]: row for row in outcome.rows}


def read(data: Path, name: str) -> Any:
    return json.loads((data / name).read_text())


@pytest.mark.thorough  # notebook 04 races both forms, and test_optima compares them
def test_section_4_6_has_one_optimum_in_both_forms_and_both_times_side_by_side(monkeypatch):
    monkeypatch.setitem(SECTION_4_6_SECONDS, "small", 1.0)
    rows = ITEMS["checkmate-section-4-6"].run("small").rows
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    for staged, free in pairs:
        assert (staged["form"], free["form"]) == ("with stages", "without stages")
        assert (staged["layers"], staged["budget"]) == (free["layers"], free["budget"])
        assert staged["status"] == "optimal"
        assert min(staged["processor seconds"], free["processor seconds"]) > 0
        if free["status"] == "optimal":
            assert free["cost"] == staged["cost"]
    staged, free = pairs[-1]
    assert (staged["operations"], staged["budget"], staged["cost"], staged["lower bound"]) == (17, 4, 26, 26)
    assert free["lower bound"] <= 26 <= (free["cost"] or 26)
    assert [free["status"] for _, free in pairs[:-1]] == ["optimal"] * (len(pairs) - 1)


def test_appendix_a_has_the_published_gaps_and_the_bounds_of_the_reference(data):
    outcome = ITEMS["checkmate-appendix-a"].run("small")
    known = {entry["budget"]: entry for entry in read(data, "integrality_gap_linear8.json")}
    assert known.keys() == {row["budget"] for row in outcome.rows}
    for row in outcome.rows:
        assert row["bound"] == pytest.approx(known[row["budget"]]["lp_frontier"])
        assert row["bound without stages"] == pytest.approx(known[row["budget"]]["lp_unpartitioned"])
    first = outcome.rows[0]
    assert (first["budget"], first["optimum"]) == (4, 26)
    assert (round(first["gap"], 2), round(first["gap without stages"], 2)) == (1.18, 21.56)
    assert "1.18 and 21.56" in outcome.result


def test_the_counts_of_revolve_are_those_of_the_reference(data):
    known = {
        (entry["steps"], entry["checkpoints"]): entry["extra_forward_dp"]
        for entry in read(data, "revolve_counts.json")["revolve"]
    }
    counts = [row for row in ITEMS["checkmate-table-1"].run("small").rows if "slots" in row]
    compared = [row for row in counts if (row["steps"], row["slots"]) in known]
    assert len(compared) > 30
    for row in compared:
        assert row["forward runs"] == row["t(l, c)"] == known[row["steps"], row["slots"]], row


@pytest.mark.parametrize("name", LAYERS)
def test_keeping_everything_and_chens_square_root_take_what_the_published_program_says(name):
    known = read(DATA, "max_batch_16GB.json")[LAYERS[name].removeprefix("keras_")]["baselines"]
    graph = layer_graph(name)
    assert kept_for_good_peak(graph) == known["checkpoint_all"]["peak_batch1"]
    R, S = segment_stages(graph, published_sqrt_n_checkpoints(graph))
    peak, cost = known["chen_sqrtn"]["peak_batch1"], known["chen_sqrtn"]["cost_batch1"]
    assert (peak_of_stages(graph, R, S), (R @ graph.costs).sum()) == (peak, cost)


def test_the_stages_of_a_segmentation_are_those_of_the_published_program(data):
    methods = ("chen_sqrtn", "chen_greedy")
    entries = [entry for entry in read(data, "baselines_linear.json") if entry["method"] in methods]
    assert len(entries) == 28
    for entry in entries:
        graph = linear(int(entry["graph"].removeprefix("linear")))
        points, size = chain_points(graph), entry["segment_mem"]
        R, S = segment_stages(graph, every_sqrt_n(points) if size is None else greedy(graph, points, size))
        assert ["".join(map(str, row)) for row in S.astype(int)] == entry["S"], entry
        assert ["".join(map(str, row)) for row in R.astype(int)] == entry["R"], entry
        assert peak_of_stages(graph, R, S) == entry["peak"], entry


def test_the_square_root_rule_of_resnet50_trains_more_where_points_are_counted_in_their_order():
    graph = layer_graph("ResNet50")
    ordered = every_sqrt_n(articulation_split_points(graph))
    assert ordered != published_sqrt_n_checkpoints(graph)
    batches = [
        largest_batch(MEMORY, graph.resident_bytes, peak_of_stages(graph, *segment_stages(graph, checkpoints)))
        for checkpoints in (published_sqrt_n_checkpoints(graph), ordered)
    ]
    assert batches == [118, 131]


def test_the_seventh_network_is_fcn8_with_the_parameters_and_values_of_the_model_of_the_zoo():
    graph = layer_graph("FCN8")
    with torch.device("meta"):
        model = FCN8()
    assert graph.resident_bytes == 8 * sum(parameter.numel() for parameter in model.parameters())
    sizes: set[int] = set()
    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(lambda module, args, output: sizes.add(4 * output.numel()))
    model(torch.empty(1, 3, 416, 608, device="meta"))
    cropped = {"crop to level 4 width", "crop to level 4 height", "crop to level 3 width", "crop to level 3 height"}
    written = {
        int(graph.value_bytes[k])
        for k, one in enumerate(graph.operations)
        if one.phase == "forward" and one.name not in cropped
    }
    assert written == sizes


@pytest.mark.parametrize("name", LAYERS)
def test_the_rules_of_layers_give_the_training_graphs_of_the_other_six(name):
    graph = layer_graph(name)
    elements, costs = (graph.value_bytes // 4).tolist(), graph.costs.astype(int).tolist()
    layers = [Layer(f"v{k}", graph.inputs(k), elements[k], costs[k]) for k in range(graph.n // 2)]
    made = training_graph(name, layers)
    assert [made.inputs(k) for k in range(made.n)] == [graph.inputs(k) for k in range(graph.n)]
    assert made.costs.tolist() == graph.costs.tolist()
    assert made.value_bytes.tolist() == graph.value_bytes.tolist()


def test_the_published_167_and_197_count_parameters_twice_and_181_and_213_is_right(figure_6):
    row, known = figure_6["VGG19"], read(DATA, "max_batch_16GB.json")["VGG19"]["baselines"]
    assert (row["everything kept, parameters twice"], row["Chen, parameters twice"]) == (167, 197)
    assert (row["everything kept"], row["Chen"]) == (181, 213)
    for method, entry in (("everything kept", "checkpoint_all"), ("Chen", "chen_sqrtn")):
        assert row[method] == known[entry]["max_batch"]
        assert row[f"{method}, parameters twice"] == known[entry]["max_batch_parameters_counted_twice"]


def test_the_largest_batches_are_proven_and_no_smaller_than_the_published_ones_and_those_of_rules(figure_6):
    for name, row in figure_6.items():
        known = read(DATA, "max_batch_16GB.json")[LAYERS[name].removeprefix("keras_")]
        assert row["proven"], name
        assert row["batch"] == row["upper bound"] == known["batch_upper_bound"]
        assert row["batch"] >= row["published"] == known["paper_checkmate"]
        assert row["everything kept, freed"] <= best_rule(row) <= row["batch"]
    assert (best_rule(figure_6["MobileNet"]), best_rule(figure_6["U-Net"])) == (864, 45)
    row = figure_6["MobileNet"]  # the gains that the paper names are those of parameters counted twice
    assert f"{row['published'] / row['everything kept, parameters twice']:.1f}" == "5.1"
    assert f"{row['published'] / row['greedy, parameters twice']:.2f}" == "1.73"


def test_figure_7_shows_three_matrices_of_vgg19_with_their_batches():
    figure_7: Any = ITEMS["checkmate-figure-7"].run("small")
    assert [(row["method"], row["batch"], row["published"]) for row in figure_7.rows] == [
        ("everything kept", 181, 167),
        ("Chen √n", 213, 197),
        ("Checkmate", 289, 289),
    ]
    matrices = [unpack_rows(row["R"], "R", ScheduleError) for row in figure_7.rows]
    for R, row in zip(matrices, figure_7.rows, strict=True):
        assert R.shape == (51, 51)
        assert np.array_equal(R.diagonal(), np.ones(51))
        assert not np.triu(R, 1).any()
        assert R.sum() - 51 == row["recomputations"]
    graph = layer_graph("VGG19")
    limit = 1 + graph.costs[~graph.is_backward].sum() / graph.total_cost  # one extra forward pass
    assert all(1 <= row["overhead"] <= limit for row in figure_7.rows)
    heatmaps = [trace for trace in figure_7.figure.data if trace.type == "heatmap"]
    assert [trace.z.shape for trace in heatmaps] == [(51, 51)] * 3
    assert [note.text for note in figure_7.figure.layout.annotations][-1] == "Checkmate: batch 289"


def test_figure_1_needs_30_gigabytes_and_saves_21_of_them():
    rows = ITEMS["checkmate-figure-1"].run("small").rows
    assert round(rows[0]["peak"] / 1e9) == 30
    assert len(rows) == 2
    assert rows[0]["peak"] - rows[1]["peak"] >= 21 * 10**9
    assert 1 < rows[1]["overhead"] < 4 / 3  # less than one extra forward pass


def test_the_answers_of_the_course_are_those_of_the_layer_graphs():
    vgg19, resnet50 = layer_graph("VGG19"), layer_graph("ResNet50")
    peak, fixed = kept_for_good_peak(resnet50), resnet50.resident_bytes
    once, twice = (largest_batch(MEMORY, fixed, peak, times) for times in (1, 2))
    assert EXERCISES["06.2"].right() == layer_graph("VGG16", 256).resident_bytes
    assert EXERCISES["07.1"].right() == 10**9 // kept_for_good_peak(vgg19)
    assert EXERCISES["07.2"].right() == once - twice
