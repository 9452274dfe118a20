"""MONeT's items at full size as `benchmarks/papers.py` found them, to be drawn at once: to find them takes hours.

The file beside the papers' other data has their rows, and who measured them where; the figures are drawn anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from remat_explorer.errors import UnknownNameError
from remat_explorer.papers.item import Outcome
from remat_explorer.papers.monet import figure_3, figure_3_roofline, figure_4, solver_time, table_1
from remat_explorer.papers.networks import data_file

FILE = "monet_full_results.json"
DIGITS = 7  # significant ones of every number
Rows = list[dict[str, Any]]


def _figure_4(rows: Rows) -> Outcome:
    return figure_4.outcome_of(rows, "full", complete=True)


def _section_5(rows: Rows) -> Outcome:
    raced = [row for row in rows if row["way"] in solver_time.RACES]  # rows of the authors' logs are made again
    return solver_time.outcome_of(raced, complete=True)


def _table_1(rows: Rows) -> Outcome:
    found_here = [row for row in rows if row["way"] != table_1.THEIRS]  # the authors' own rows are made again
    return table_1.outcome_of(found_here, complete=True)


OUTCOMES: dict[str, Callable[[Rows], Outcome]] = {
    "monet-table-1": _table_1,
    "monet-figure-3": lambda rows: figure_3.outcome_of(rows, complete=True),
    "monet-figure-3-by-a-roofline": lambda rows: figure_3_roofline.outcome_of(rows, complete=True),
    "monet-section-5": _section_5,
    "monet-figure-4": _figure_4,
}


def full_result(key: str) -> Outcome:
    """An item at full size, with the networks and sizes of the paper, from the results that come with the package.

    Args:
        key: of the item, such as "monet-figure-4".

    Raises:
        UnknownNameError: if the package has no results of that item.

    >>> full_result("monet-table-1").complete
    True
    """
    if key not in OUTCOMES:
        raise UnknownNameError("item with results in the package", key, OUTCOMES)
    return OUTCOMES[key](json.loads(data_file(FILE).read_text(encoding="utf-8"))[key])


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
