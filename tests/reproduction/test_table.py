"""The tables of docs/papers.md say what the results file holds and where the papers say it; the page's program runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from remat_explorer.errors import UnknownNameError
from reproduction import ITEMS, full_result, monet_measured, monet_memory_at_overhead, monet_roofline, monet_solver_time
from reproduction.items import (
    COLUMNS,
    FILE,
    NOTHING,
    OUTCOMES,
    TABLE_BEGINS,
    TABLE_ENDS,
    items_table,
    items_tables,
    kept_rows,
)
from reproduction.layer_graphs import DATA
from reproduction.p100 import pytorch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()
RESULTS = ROOT / "benchmarks" / "results"
PLACES = {  # figures, tables, sections and appendices of each paper
    "Checkmate": {f"Figure {n}" for n in range(1, 9)}
    | {"Table 1", "Table 2", *(f"section {n}" for n in range(1, 8)), *(f"section 4.{n}" for n in range(1, 11))}
    | {*(f"section 5.{n}" for n in range(1, 4)), *(f"section 6.{n}" for n in range(1, 6))}
    | {f"appendix {letter}" for letter in "ABCD"}
    | {"talk", "README of the authors' artifact"},
    "MONeT": {f"Figure {n}" for n in range(1, 8)}
    | {"Table 1", "Table 2", *(f"section {n}" for n in range(1, 7)), *(f"appendix {letter}" for letter in "ABCDEFGH")},
}


def results() -> dict:
    return json.loads((RESULTS / "papers.json").read_text())


def test_the_table_is_made_from_the_results_file():
    shown = PAGE.partition(TABLE_BEGINS)[2].partition(TABLE_ENDS)[0].strip()
    assert shown == items_tables(results()), "run: python benchmarks/papers.py --table"


def test_every_result_is_made_from_its_rows_to_the_digit():
    assert results().keys() <= ITEMS.keys()
    for key, entry in results().items():
        told = ITEMS[key].words(entry["rows"], entry["settings"])
        assert entry["result"] == told, key
        assert re.search(r"\d", told), key


def test_the_results_that_come_with_the_package_are_those_of_the_results_file():
    known = results()
    assert (DATA / FILE).read_text() == kept_rows(known), "run: python benchmarks/papers.py --table"
    for key in OUTCOMES:
        outcome = full_result(key)
        assert known[key]["settings"] == "full"
        assert outcome.result == known[key]["result"]
        assert outcome.complete
        assert outcome.figure.to_dict()["data"]
    with pytest.raises(UnknownNameError, match="monet-figure-5"):
        full_result("monet-figure-5")


def rows_of_the_page() -> list[dict[str, str]]:
    """The rows of both tables, each with the paper's name, its key, and its cells by column."""
    rows, paper = [], ""
    for line in PAGE.partition(TABLE_BEGINS)[2].partition(TABLE_ENDS)[0].splitlines():
        if line.startswith("### "):
            paper = line[4:]
        key = re.search(r"\(`([\w-]+)`\) \|", line)
        if line.startswith("| ") and key:
            cells = (cell.strip() for cell in line.strip("|").split(" | "))
            rows.append({"paper": paper, "key": key[1], **dict(zip(COLUMNS, cells, strict=True))})
    return rows


def test_every_published_statement_has_its_place_in_the_paper():
    for row in rows_of_the_page():
        for statement in row["published result"].split("; "):
            place = re.fullmatch(r".+ \(([^()]+)\)", statement)
            assert place, f"{row['key']}: no place in {statement!r}"
            for one in place[1].split(", "):
                assert one in PLACES[row["paper"]], f"{row['key']}: {one!r} is no place in the paper"


def test_each_table_has_one_unit_of_memory():
    of_the_other = {"Checkmate": r"[KMGT]iB\b", "MONeT": r"\b[kMGT]B\b"}
    for row in rows_of_the_page():
        words = row["our result"] + row["published result"] + row["remark"]
        assert not re.findall(of_the_other[row["paper"]], words), row["key"]


def test_the_table_has_a_row_for_every_item_and_says_what_was_not_run():
    known = {"checkmate-figure-5": {"result": "as | is", "settings": "small", "complete": False}}
    tables = [items_table(known, paper) for paper in PLACES]
    lines = [line for table in tables for line in table.splitlines()[2:]]
    assert len(lines) == len(ITEMS)
    assert {line.count(" | ") for line in lines} == {6}
    assert "as / is (small settings, interrupted)" in tables[0]
    assert "".join(tables).count(NOTHING) == len(ITEMS) - 1


def test_monets_items_are_read_from_the_results_of_their_own_benchmark():
    point = {"share": 0.5, "way": "monet", "overhead": 0.02, "peak": 5, "gap": 0.0, "status": "optimal"}
    points = [point, point | {"way": "checkmate-d", "overhead": 0.125}]
    races = [{"share": 0.6, "way": way, "within 0.05": 1.5, "status": "optimal"} for way in monet_solver_time.WAYS]
    ways = {"checkmate-d": {"peak": 60, "lower_bound": 50}, "monet": {"peak": 40, "lower_bound": 30}}
    overheads = {"none": None, "masks": 0.5, "all": 0.25}
    groups = [{"share": 0.5, "groups": {name: {"overhead": overhead} for name, overhead in overheads.items()}}]
    entry = {"table1": {"eager_peak": 100, "ways": ways}, "figure3": {"points": points}}
    entry |= {"figure4": {"races": races}, "figure6": {"points": groups}}
    known = {"roofline/vgg16": entry, "cpu/vgg16": {}}
    roofline = monet_roofline.figure_3_roofline_from_results, monet_roofline.figure_6_roofline_from_results
    readers = monet_memory_at_overhead.from_results, monet_solver_time.from_results, *roofline
    outcomes = [read(known) for read in readers]
    words = [outcome.result for outcome in outcomes if outcome is not None]
    assert len(words) == 4
    assert "vgg16 0.400 (lower bound 0.300; Checkmate 0.600)" in words[0]
    assert "1.5 s at the longest on 1 of 1" in words[1]
    assert "+2.0 % (gap 0 %) with implementations, +12.5 % (gap 0 %) for Checkmate" in words[2]
    assert "none no schedule, masks +50.0 %, all +25.0 %" in words[3]
    assert not any(outcome.complete for outcome in outcomes if outcome is not None)
    assert monet_memory_at_overhead.from_results({"cpu/vgg16": {}}) is None


def test_what_was_found_on_the_p100s_costs_is_read_from_the_results_of_its_own_benchmark():
    ours = {"cost": 1.45, "fastest": 1.40, "gap": 0.25, "status": "feasible"}
    known = {"vgg16_i@8": {"ours": ours}, "vgg16_checkmate@8": {"ours": ours}}
    for read, group in (
        (monet_measured.figure_3_from_results, "Checkmate-O"),
        (monet_measured.figure_4_from_results, "none"),
        (monet_measured.figure_6_from_results, "none"),
    ):
        outcome = read(known)
        (row,) = (row for row in outcome.rows if row.get("way", row.get("group")) == group)
        assert (row["ms"], row["gap"], row["budget GiB"]) == (1450.0, 0.25, 8.0)
        assert row["overhead"] == pytest.approx(1400.0 / pytorch("vgg16")["ms"])
        assert not outcome.complete
        known_before = {name: {"ours": {"cost": 1.45}} for name in known}  # by a benchmark that kept less
        assert len(read(known_before).rows) == len(outcome.rows) - 1


def test_the_program_on_the_page_runs(capsys):
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, {})
    assert "1.18 and 21.56" in capsys.readouterr().out
