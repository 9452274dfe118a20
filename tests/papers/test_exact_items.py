"""Items that depend on no machine are exact, and published figures that do not hold are explained by arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from remat_explorer.documents import unpack_rows
from remat_explorer.errors import ScheduleError
from remat_explorer.papers import ITEMS, Outcome
from remat_explorer.papers.checkmate.accounting import kept_for_good_peak
from remat_explorer.papers.networks import LAYERS, layer_graph

MEMORY = 16 * 10**9


@pytest.fixture(scope="module")
def figure_6() -> dict[str, Any]:
    outcome = ITEMS["checkmate-figure-6"].run("small")
    assert outcome.complete
    return {row["network"]: row for row in outcome.rows}


@pytest.fixture(scope="module")
def figure_7() -> Outcome:
    return ITEMS["checkmate-figure-7"].run("small")


def read(data: Path, name: str) -> Any:
    return json.loads((data / name).read_text())


def test_section_4_6_has_one_optimum_in_both_forms_and_both_times_side_by_side():
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
def test_keeping_everything_takes_what_the_published_program_says(name, data):
    known = read(data, "max_batch_16GB.json")[LAYERS[name].removeprefix("keras_")]
    assert kept_for_good_peak(layer_graph(name)) == known["baselines"]["checkpoint_all"]["peak_batch1"]


def test_the_published_167_and_197_count_parameters_twice_and_181_and_213_is_right(figure_6, data):
    row, known = figure_6["VGG19"], read(data, "max_batch_16GB.json")["VGG19"]["baselines"]
    assert (row["everything kept, parameters twice"], row["Chen, parameters twice"]) == (167, 197)
    assert (row["everything kept"], row["Chen"]) == (181, 213)
    for method, entry in (("everything kept", "checkpoint_all"), ("Chen", "chen_sqrtn")):
        assert row[method] == known[entry]["max_batch"]
        assert row[f"{method}, parameters twice"] == known[entry]["max_batch_parameters_counted_twice"]


def test_the_largest_batches_are_proven_and_no_smaller_than_the_published_ones(figure_6, data):
    for name, row in figure_6.items():
        known = read(data, "max_batch_16GB.json")[LAYERS[name].removeprefix("keras_")]
        assert row["proven"], name
        assert row["batch"] == row["upper bound"] == known["batch_upper_bound"]
        assert row["batch"] >= row["published"] == known["paper_checkmate"]


def test_figure_7_shows_three_matrices_of_vgg19_with_their_batches(figure_7):
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
    assert [R.sum() == 51 for R in matrices] == [True, False, False]
    heatmaps = [trace for trace in figure_7.figure.data if trace.type == "heatmap"]
    assert [trace.z.shape for trace in heatmaps] == [(51, 51)] * 3
    assert [note.text for note in figure_7.figure.layout.annotations][-1] == "Checkmate: batch 289"


def test_one_extra_forward_pass_is_the_limit_of_every_schedule_of_figure_7(figure_7):
    graph = layer_graph("VGG19")
    limit = 1 + graph.costs[~graph.is_backward].sum() / graph.total_cost
    assert all(1 <= row["overhead"] <= limit for row in figure_7.rows)


def test_figure_1_needs_30_gigabytes_and_saves_21_of_them():
    rows = ITEMS["checkmate-figure-1"].run("small").rows
    assert round(rows[0]["peak"] / 1e9) == 30
    assert len(rows) == 2
    assert rows[0]["peak"] - rows[1]["peak"] >= 21 * 10**9
    assert 1 < rows[1]["overhead"] < 4 / 3  # less than one extra forward pass
