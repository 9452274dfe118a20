"""The cells of docs/papers.md are short, and say what the results file and the papers say; the page's program runs."""

import json
import re
from pathlib import Path

import pytest

from remat_explorer.errors import UnknownNameError
from reproduction import ITEMS, full_result, monet_measured, monet_memory_at_overhead, monet_roofline, monet_solver_time
from reproduction.items import FILE, OUTCOMES, kept_rows
from reproduction.layer_graphs import DATA
from reproduction.overview import BRIEFS, MOST_WORDS, TABLE_BEGINS, TABLE_ENDS, item_text, overview
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
    "POET": {"repository"},
}


def results() -> dict:
    return json.loads((RESULTS / "papers.json").read_text())


def test_the_table_is_that_of_the_briefs():
    shown = PAGE.partition(TABLE_BEGINS)[2].partition(TABLE_ENDS)[0].strip()
    assert shown == overview(), "run: python benchmarks/papers.py --table"


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


def numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\d.])\d+(?:\.\d+)?", text.replace(",", "")))


@pytest.mark.parametrize("key", ITEMS)
def test_a_brief_has_the_numbers_of_the_result_and_of_the_paper_in_few_words(key):
    brief, published = BRIEFS[key], ITEMS[key].published
    assert numbers(brief.ours) <= numbers(results()[key]["result"])
    assert numbers(brief.published) <= numbers(published)
    for cell in (brief.ours, brief.published, brief.alike):
        assert 0 < len(cell.split()) <= MOST_WORDS, cell


def test_every_cell_of_the_page_has_few_words():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert len(rows) > len(ITEMS)
    long = [cell for row in rows for cell in row.strip("|").split(" | ") if len(cell.split()) > MOST_WORDS]
    assert long == []


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS)
def test_every_published_statement_has_its_place_in_the_paper(item):
    for statement in item.published.split("; "):
        place = re.fullmatch(r".+ \(([^()]+)\)", statement)
        assert place, f"no place in {statement!r}"
        for one in place[1].split(", "):
            assert one in PLACES[item.paper], f"{one!r} is no place in the paper"


@pytest.mark.parametrize("key", ITEMS)
def test_a_paper_has_one_unit_of_memory(key):
    of_the_other = {"Checkmate": r"[KMGT]iB\b", "MONeT": r"\b[kMGT]B\b", "POET": r"[KMGT]i?B\b"}[ITEMS[key].paper]
    brief = BRIEFS[key]
    words = results()[key]["result"] + ITEMS[key].published + ITEMS[key].remark + brief.ours + brief.published
    assert not re.findall(of_the_other, words)


def test_an_items_page_has_result_and_remark_and_says_what_was_not_run():
    item = ITEMS["checkmate-figure-5"]
    entry = {"result": "One. Two 1.5.", "rows": [{"n": 7}], "settings": "small", "complete": False}
    text = item_text(item, entry)
    assert "- One.\n- Two 1.5. (with small settings, interrupted)\n" in text
    assert "<td>7</td>" in text
    assert item.remark in text
    assert "Not run yet." in item_text(item, None)


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
