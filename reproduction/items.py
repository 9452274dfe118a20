"""All items by key, in the papers' order, and results found before.

`full_result` draws MONeT's items at full size at once, which take hours to find: data/monet_full_results.json has the
rows that `benchmarks/papers.py` found, and the figures are drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from remat_explorer.errors import UnknownNameError
from reproduction import (
    checkmate_approximations,
    checkmate_largest_batch,
    checkmate_memory,
    checkmate_methods,
    checkmate_plan,
    checkmate_program,
    checkmate_rounding,
    monet_case_study,
    monet_convolutions,
    monet_measured,
    monet_memory_at_overhead,
    monet_roofline,
    monet_solver_time,
    poet,
)
from reproduction.item import Item, Outcome
from reproduction.layer_graphs import DATA

FILE = "monet_full_results.json"
DIGITS = 7  # significant ones of every number
Rows = list[dict[str, Any]]
ITEMS: dict[str, Item] = {
    item.key: item
    for item in (
        checkmate_memory.FIGURE_1,
        checkmate_plan.FIGURE_2,
        checkmate_memory.FIGURE_3,
        checkmate_methods.TABLE_1,
        checkmate_plan.FIGURE_4,
        checkmate_program.SECTION_4_6,
        checkmate_rounding.SECTION_5_1,
        checkmate_approximations.TABLE_2,
        checkmate_approximations.TABLE_2_MOVES_CHARGED,
        checkmate_methods.FIGURE_5,
        checkmate_largest_batch.FIGURE_6,
        checkmate_largest_batch.FIGURE_7,
        checkmate_rounding.FIGURE_8,
        checkmate_program.APPENDIX_A,
        checkmate_program.APPENDIX_C,
        checkmate_approximations.TALK,
        monet_memory_at_overhead.TABLE_1,
        monet_measured.FIGURE_3,
        monet_roofline.FIGURE_3_ROOFLINE,
        monet_solver_time.SECTION_5,
        monet_measured.FIGURE_4,
        monet_case_study.FIGURE_5,
        monet_measured.FIGURE_6,
        monet_roofline.FIGURE_6_ROOFLINE,
        monet_convolutions.FIGURE_7,
        poet.POET,
    )
}


def find_item(key: str) -> Item:
    """The item called ``key``.

    Raises:
        UnknownNameError: if there is none; near matches are listed.

    >>> find_item("monet-table-1").name
    'MONeT, Table 1'
    """
    if key not in ITEMS:
        raise UnknownNameError("item of the papers", key, ITEMS)
    return ITEMS[key]


def _section_5(rows: Rows) -> Outcome:
    raced = [row for row in rows if row["way"] in monet_solver_time.RACES]  # rows of the authors' logs are made again
    return monet_solver_time.outcome_of(raced, complete=True)


def _table_1(rows: Rows) -> Outcome:
    theirs = monet_memory_at_overhead.THEIRS  # rows of the authors are made again
    return monet_memory_at_overhead.outcome_of([row for row in rows if row["way"] != theirs], complete=True)


OUTCOMES: dict[str, Callable[[Rows], Outcome]] = {
    "monet-table-1": _table_1,
    "monet-figure-3": lambda rows: monet_measured.figure_3_outcome(rows, complete=True),
    "monet-figure-3-by-a-roofline": lambda rows: monet_roofline.figure_3_roofline_outcome(rows, complete=True),
    "monet-section-5": _section_5,
    "monet-figure-4": lambda rows: monet_measured.figure_4_outcome(rows, "full", complete=True),
}


def full_result(key: str) -> Outcome:
    """An item at full size, with the networks and sizes of the paper, from results that were found before.

    Args:
        key: of the item, such as "monet-figure-4".

    Raises:
        UnknownNameError: if there are no results of that item.

    >>> full_result("monet-table-1").complete
    True
    """
    if key not in OUTCOMES:
        raise UnknownNameError("item with results in the package", key, OUTCOMES)
    return OUTCOMES[key](json.loads((DATA / FILE).read_text(encoding="utf-8"))[key])


def kept_rows(known: Mapping[str, Mapping[str, Any]]) -> str:
    """The contents of the file, a row on each line.

    Args:
        known: the results of the benchmark, by item.

    >>> print(kept_rows({"monet-figure-4": {"rows": [{"network": "vgg16", "ms": 1383.33000000001}]}}), end="")
    {"monet-figure-4": [
    {"network": "vgg16", "ms": 1383.33}
    ]}
    """
    items = []
    for key in (key for key in OUTCOMES if key in known):
        short = [{name: _short(entry) for name, entry in row.items()} for row in known[key]["rows"]]
        rows = ",\n".join(json.dumps(row) for row in short)
        items.append(f"{json.dumps(key)}: [\n{rows}\n]")
    return "{" + ",\n".join(items) + "}\n"


def _short(entry: Any) -> Any:
    return float(f"{entry:.{DIGITS}g}") if isinstance(entry, float) else entry
