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
from reproduction import ITEMS, PAPERS, Outcome, monet_memory_at_overhead, monet_roofline, monet_solver_time, p100
from reproduction.checkmate_program import graph_of, least_memory, programs, registers
from tests.reproduction.searches import search_until_found
from tests.thorough import thorough

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"checkmate-figure-1", "checkmate-figure-6", "checkmate-figure-7", "checkmate-section-4-6"}  # exact items
ELSEWHERE |= {"checkmate-table-1", "checkmate-appendix-a"}
ELSEWHERE |= {"monet-figure-5"}  # notebook 08 runs it, every night
ELSEWHERE |= {"monet-figure-3", "monet-figure-4"}  # with what was measured on a P100

LONG = {"checkmate-figure-3", "checkmate-table-2", "checkmate-table-2-moves-charged"}  # figure 5 sweeps them, too
LONG |= {"monet-figure-6-by-a-roofline", "monet-figure-3-by-a-roofline", "monet-section-5"}  # as monet-table-1


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.key)
def test_what_an_item_names_is_there(item):
    assert item.paper in PAPERS
    assert item.key in (re.sub(r"\W+", "-", f"{item.paper} {item.place}".lower()), item.paper.lower())
    assert re.fullmatch(r"(0[2-8]|12)_\w+\.ipynb", item.notebook)
    assert (ROOT / item.test).is_file()
    module, _, name = item.function.replace("rx.", "remat_explorer.", 1).rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


@cache
def ran(key: str) -> tuple[Outcome, list[str]]:
    """An item in small settings, and what it said on the way: it runs once for all tests."""
    said: list[str] = []
    roofline = monet_roofline.FIGURE_3_ROOFLINE_SECONDS, monet_roofline.FIGURE_6_ROOFLINE_SECONDS
    with pytest.MonkeyPatch.context() as patch:
        for seconds in (monet_memory_at_overhead.SECONDS, monet_solver_time.SECONDS, *roofline):
            patch.setitem(seconds, "small", 0.4)  # a search takes whatever it is given
        search_until_found(patch, p100)
        return ITEMS[key].run("small", said.append), said


@pytest.mark.parametrize("key", [thorough(key) if key in LONG else key for key in ITEMS if key not in ELSEWHERE])
def test_an_item_runs_in_small_settings(key):
    outcome, said = ran(key)
    assert outcome.complete
    assert said
    assert outcome.rows
    rows = json.loads(json.dumps(outcome.to_document(), allow_nan=False))["rows"]
    assert outcome.result == ITEMS[key].words(rows, "small")
    assert outcome.result.endswith(".")
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
        pairs = [(i, k) for k in range(5) for i in program[k]]
        orders = [o for o in permutations(range(5)) if all(o.index(i) < o.index(k) for i, k in pairs)]
        peaks = [Plan.from_sequence(graph_of(program), [(0, k, 1) for k in order]).peak for order in orders]
        assert min(peaks) == least_memory(program) == registers(program) + 1


def test_rounding_and_the_integer_program_of_the_talk_have_times_and_one_bound():
    rows = {row["method"]: row for row in ran("checkmate-talk")[0].rows}
    assert rows["checkmate-ilp"]["status"] == rows["optimal"]["status"] == "optimal"
    assert rows["checkmate-approx"]["cost"] >= rows["checkmate-ilp"]["cost"] == pytest.approx(rows["optimal"]["cost"])
    assert min(row["processor seconds"] for row in rows.values()) > 0


@pytest.mark.parametrize("key", ["checkmate-figure-6", "monet-section-5"])
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
    with pytest.raises(QuantityError, match="'huge'; give 'small' or 'full'"):
        ITEMS["checkmate-appendix-a"].run("huge")  # type: ignore[arg-type]


def test_an_outcome_is_saved_as_a_page_that_asks_no_other_machine_and_as_json(tmp_path):
    outcome = ran("checkmate-appendix-a")[0]
    text = outcome.save(tmp_path / "item.html", "Gaps <of> both").read_text()
    assert "<h1>Gaps &lt;of&gt; both</h1>" in text
    assert escape(outcome.result) in text
    assert "plotly.js v" in text
    assert "<td>21.56</td>" in text
    assert not re.search(r"<(script|link)[^>]*(src|href)=.https?:", text)
    document = json.loads(outcome.save(tmp_path / "item.json").read_text())
    assert document["rows"] == [dict(row) for row in outcome.rows]
    assert [trace["name"] for trace in document["figure"]["data"]] == ["with stages", "without stages"]
