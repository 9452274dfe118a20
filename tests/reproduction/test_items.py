"""All items: described, run in small settings, cancelled, and written."""

from __future__ import annotations

import importlib
import json
import re
from functools import cache
from html import escape
from itertools import permutations
from pathlib import Path

import pytest

from remat_explorer.errors import QuantityError
from remat_explorer.plan import Plan
from reproduction import (
    ITEMS,
    PAPERS,
    Outcome,
    monet_measured,
    monet_memory_at_overhead,
    monet_roofline,
    monet_solver_time,
)
from reproduction.checkmate_memory import share_of_features
from reproduction.checkmate_program import graph_of, least_memory, programs, registers

ROOT = Path(__file__).parents[2]
CHECKMATE = [
    "Figure 1",
    "Figure 2",
    "Figure 3",
    "Figure 4",
    "Figure 5",
    "Figure 6",
    "Figure 7",
    "Figure 8",
    "Table 1",
    "Table 2",
]
ALL = {
    ("Checkmate", place)
    for place in [
        *CHECKMATE,
        "section 4.6",
        "section 5.1",
        "appendix A",
        "appendix C",
        "Table 2, moves charged",
        "talk",
    ]
} | {
    ("MONeT", place)
    for place in [
        "Table 1",
        "section 5",
        *(f"Figure {n}" for n in range(3, 8)),
        "Figure 3, by a roofline",
        "Figure 6, by a roofline",
    ]
}
ELSEWHERE = {"checkmate-figure-1", "checkmate-figure-6", "checkmate-figure-7", "checkmate-section-4-6"}  # exact items
ELSEWHERE |= {"checkmate-table-1", "checkmate-appendix-a"}

ELSEWHERE |= {"monet-figure-5"}  # notebook 08 runs it
ELSEWHERE |= {"monet-figure-3", "monet-figure-4"}  # with what was measured on a P100


def test_the_items_are_those_of_both_papers():
    assert {(item.paper, item.place) for item in ITEMS.values()} == ALL
    assert {item.paper for item in ITEMS.values()} == set(PAPERS)
    for key, item in ITEMS.items():
        assert key == item.key == re.sub(r"\W+", "-", f"{item.paper} {item.place}".lower())


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.key)
def test_what_an_item_names_is_there(item):
    assert item.title
    assert item.published
    assert item.remark.endswith(".")
    assert re.fullmatch(r"0[2-8]_\w+\.ipynb", item.notebook)
    assert (ROOT / item.test).is_file()
    module, _, name = item.function.replace("rx.", "remat_explorer.", 1).rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


@cache
def ran(key: str) -> tuple[Outcome, list[str]]:
    """An item in small settings, and what it said on the way: it runs once for all tests.

    The longest ones have less time for each of their searches, which takes whatever it is given.
    """
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for seconds in (
            monet_measured.FIGURE_6_SECONDS,
            monet_memory_at_overhead.SECONDS,
            monet_roofline.FIGURE_3_ROOFLINE_SECONDS,
            monet_roofline.FIGURE_6_ROOFLINE_SECONDS,
            monet_solver_time.SECONDS,
        ):
            patch.setitem(seconds, "small", 0.4)
        return ITEMS[key].run("small", said.append), said


@pytest.mark.parametrize("key", [key for key in ITEMS if key not in ELSEWHERE])
def test_an_item_runs_in_small_settings(key):
    outcome, said = ran(key)
    assert outcome.complete
    assert said
    assert outcome.result.endswith(".")
    assert outcome.rows
    json.dumps(outcome.to_document(), allow_nan=False)
    assert outcome.figure.to_dict()["data"]


def test_the_optimal_strategy_is_nowhere_worse_in_figure_5():
    by_budget: dict[int, dict[str, float]] = {}
    for row in ran("checkmate-figure-5")[0].rows:
        if row.get("overhead") is not None:
            by_budget.setdefault(row["budget"], {})[row["strategy"]] = row["overhead"]
    compared = [costs for costs in by_budget.values() if "optimal" in costs and len(costs) > 1]
    assert compared
    for costs in compared:
        assert costs["optimal"] == pytest.approx(min(costs.values()))


def test_deterministic_rounding_is_cheaper_than_the_mean_of_randomized_rounding():
    outcome, _ = ran("checkmate-figure-8")
    for row in outcome.rows:
        assert len(row["costs"]) == len(row["peaks"]) == row["draws"]
        assert 1 <= row["optimal"] <= row["deterministic"] <= row["mean"]
    (cloud,) = [trace for trace in outcome.figure.to_dict()["data"] if trace["name"] == "randomized"]
    assert len(cloud["customdata"]) == outcome.rows[0]["draws"]


def test_no_value_is_freed_twice_and_without_the_last_factor_some_would_be():
    counts = [row for row in ran("checkmate-figure-4")[0].rows if "stages times values" in row]
    assert [count["times at most"] for count in counts] == [1]
    assert counts[0]["without the last factor"] > 1
    steps = [row for row in ran("checkmate-figure-4")[0].rows if "operation" in row]
    assert any(row["freed"] and row["stays"] for row in steps)


def test_no_draw_of_both_matrices_fits_into_the_smallest_budget_of_vgg16():
    rows = ran("checkmate-section-5-1")[0].rows
    assert [row["linear program"] for row in rows] == ["solved"] * 4
    assert rows[0]["feasible"] == rows[0]["schedules"] == 0
    assert rows[0]["largest operation"] > rows[0]["everything kept"] / 4
    assert all(row["feasible"] <= row["schedules"] <= row["samples"] for row in rows)
    assert rows[-1]["schedules"] > 0


def test_the_new_training_graph_of_figure_2_has_a_node_for_each_computation_of_the_plan():
    rows = ran("checkmate-figure-2")[0].rows
    steps = {row["step"]: row for row in rows if "step" in row}
    computations = [row for row in rows if "computation" in row]
    repeated = [row for row in computations if row["drawn as"] == "computed again"]
    assert steps["new training graph"]["operations"] == len(computations) == 71 + len(repeated)
    assert len(repeated) == steps["schedule"]["repeated"] > 0
    assert max(row["memory"] for row in computations) == steps["plan"]["peak"] <= 11 * 10**9
    assert all(source < row["computation"] for row in computations for source in row["reads"])


def test_a_program_takes_one_byte_more_than_registers_and_the_integer_program_knows_it():
    rows = ran("checkmate-appendix-c")[0].rows
    assert [row["programs"] for row in rows] == [1, 3, 21, 315]
    assert [row["bytes are registers + 1"] for row in rows] == [1, 3, 21, 315]
    assert [row.get("decided rightly") for row in rows] == [1, 3, 21, None]
    assert [row["more in the given order"] for row in rows] == [0, 0, 0, 12]


def test_the_least_memory_is_that_of_the_best_plan_over_all_orders():
    for program in list(programs(5))[::7]:
        orders = [
            order
            for order in permutations(range(5))
            if all(order.index(i) < order.index(k) for k in range(5) for i in program[k])
        ]
        peaks = [Plan.from_sequence(graph_of(program), [(0, k, 1) for k in order]).peak for order in orders]
        assert min(peaks) == least_memory(program) == registers(program) + 1


def test_rounding_and_the_integer_program_of_the_talk_have_times_and_one_bound():
    rows = {row["method"]: row for row in ran("checkmate-talk")[0].rows}
    assert rows["checkmate-ilp"]["status"] == rows["optimal"]["status"] == "optimal"
    assert rows["checkmate-approx"]["cost"] >= rows["checkmate-ilp"]["cost"] == pytest.approx(rows["optimal"]["cost"])
    assert min(row["processor seconds"] for row in rows.values()) > 0


def test_features_take_most_of_the_memory_of_every_network():
    rows = ran("checkmate-figure-3")[0].rows
    assert len(rows) == 3
    for row in rows:
        assert 0.5 < share_of_features(row) < 1
        assert row["parameters and inputs"] + row["parameter gradients"] < row["checkpoint-all peak"]


@pytest.mark.parametrize("key", [key for key in ITEMS if key not in ELSEWHERE])
def test_the_words_of_an_outcome_are_made_from_its_rows(key):
    outcome, _ = ran(key)
    assert outcome.result == ITEMS[key].words(json.loads(json.dumps(outcome.to_document()["rows"])), "small")


@pytest.mark.parametrize("key", ["checkmate-figure-3", "checkmate-figure-6", "checkmate-table-2", "monet-section-5"])
def test_a_cancelled_item_says_that_it_is_not_complete(key):
    outcome = ITEMS[key].run("small", cancelled=lambda: True)
    assert not outcome.complete
    assert outcome.rows == ()


def test_what_there_was_before_a_cancel_is_kept():
    said: list[str] = []
    outcome = ITEMS["checkmate-appendix-a"].run("small", said.append, lambda: len(said) == 2)
    assert not outcome.complete
    assert [row["budget"] for row in outcome.rows] == [4, 5]
    assert "1.18 and 21.56" in outcome.result


def test_other_settings_are_refused():
    with pytest.raises(QuantityError, match="'huge'; give 'small' or 'full'"):
        ITEMS["checkmate-appendix-a"].run("huge")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return ran("checkmate-appendix-a")[0]


def test_a_page_has_the_result_the_figure_and_the_data_and_asks_no_other_machine(outcome, tmp_path):
    text = outcome.save(tmp_path / "item.html", "Gaps <of> both").read_text()
    assert "<h1>Gaps &lt;of&gt; both</h1>" in text
    assert escape(outcome.result) in text
    assert "plotly.js v" in text
    assert "<td>21.56</td>" in text
    assert not re.search(r"<(script|link)[^>]*(src|href)=.https?:", text)


def test_a_json_file_has_rows_and_figure(outcome, tmp_path):
    document = json.loads(outcome.save(tmp_path / "item.json").read_text())
    assert document["rows"] == [dict(row) for row in outcome.rows]
    assert [trace["name"] for trace in document["figure"]["data"]] == ["with stages", "without stages"]
