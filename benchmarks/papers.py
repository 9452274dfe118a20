"""Every item of both papers at full settings; `reproduction/overview.py` has the short cells of docs/papers.md.

    python benchmarks/papers.py                                  # what has no result yet
    python benchmarks/papers.py checkmate-figure-6 --again       # one item anew
    python benchmarks/papers.py --table                          # the tables alone, from the results that are there

Each outcome is written to results/papers.json when it is there, so an interrupted run goes on where it was; what the
notebooks draw of it lies in reproduction/data (`reproduction.full_result`). Items that another benchmark measures are
taken from its results where those are complete (`--anew` runs them here): Table 2 from approximation.py, Figure 6 from
max_batch.py, MONeT's Figures 3, 4 and 6 on measured costs from monet_p100.py, its Table 1, Figures 3 and 6 by a
roofline and its solver times from monet.py.

The words of a result are made from its rows again each time, so that results can be told in other words without running
anything.

Costs are FLOPs on Checkmate's layer graphs, what MONeT's authors measured on a P100 on theirs, else a roofline of a
V100 or a P100. The second part of MONeT's Figure 7 is measured on this machine.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from report import RESULTS, fill, machine

from remat_explorer.documents import write_text
from remat_explorer.errors import RematError
from remat_explorer.solvers.search.compilation import warm_up
from reproduction import (
    ITEMS,
    Outcome,
    checkmate_approximations,
    checkmate_largest_batch,
    monet_measured,
    monet_memory_at_overhead,
    monet_roofline,
    monet_solver_time,
)
from reproduction.items import FILE, kept_rows
from reproduction.layer_graphs import DATA
from reproduction.overview import TABLE_BEGINS, TABLE_ENDS, overview

RESULT = RESULTS / "papers.json"
PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
MEASURED: dict[str, tuple[str, Callable[[Any], Outcome | None]]] = {  # another benchmark's file, and how it is read
    "checkmate-figure-6": ("max_batch", checkmate_largest_batch.figure_6_from_results),
    "checkmate-table-2": ("approximation", checkmate_approximations.table_2_from_results),
    "monet-table-1": ("monet", monet_memory_at_overhead.from_results),
    "monet-figure-3": ("monet_p100", monet_measured.figure_3_from_results),
    "monet-figure-3-by-a-roofline": ("monet", monet_roofline.figure_3_roofline_from_results),
    "monet-section-5": ("monet", monet_solver_time.from_results),
    "monet-figure-4": ("monet_p100", monet_measured.figure_4_from_results),
    "monet-figure-6": ("monet_p100", monet_measured.figure_6_from_results),
    "monet-figure-6-by-a-roofline": ("monet", monet_roofline.figure_6_roofline_from_results),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", nargs="*", metavar="ITEM", help="keys (default: all without a complete result)")
    parser.add_argument("--settings", choices=("small", "full"), default="full", help="default: full")
    parser.add_argument("--again", action="store_true", help="also items that have a complete result")
    parser.add_argument("--anew", action="store_true", help="take nothing from other benchmarks' results")
    parser.add_argument("--table", action="store_true", help="write the tables, run nothing")
    options = parser.parse_args()
    known = read()
    if not options.table:
        warm_up()
        for key in options.items or ITEMS:
            if options.again or not good(known.get(key), options.settings):
                run(key, options, known)
    write_tables(known)


def run(key: str, options: argparse.Namespace, known: dict[str, Any]) -> None:
    """One item; its outcome is written at once, and one that fails leaves what was there."""
    item, begun = ITEMS[key], time.monotonic()
    source, outcome = "", None
    if key in MEASURED and not options.anew and options.settings == "full":
        source, reader = MEASURED[key]
        outcome = measured_elsewhere(source, reader)
    if outcome is None:
        source = ""
        try:
            outcome = item.run(options.settings, teller(key))
        except RematError as error:
            print(f"{key} is skipped: {error}", flush=True)
            return
    seconds = None if source else time.monotonic() - begun
    entry: dict[str, Any] = {"settings": options.settings, "seconds": seconds, "measured_by": source or "papers"}
    known |= read()  # another run may have written in the meantime
    known[key] = entry | {"machine": machine()} | outcome.to_document()
    write(known)
    print(f"{key}: {outcome.result}", flush=True)


def teller(key: str) -> Callable[[str], None]:
    """Prints what an item is doing, when that changes."""
    told = ""

    def tell(doing: str) -> None:
        nonlocal told
        if doing != told:
            print(f"{key}: {doing}", flush=True)
        told = doing

    return tell


def measured_elsewhere(name: str, reader: Callable[[Any], Outcome | None]) -> Outcome | None:
    """The outcome that another benchmark's results give, or None where they are not there or incomplete."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    outcome = reader(json.loads(path.read_text(encoding="utf-8"))["details"])
    return outcome if outcome is not None and outcome.complete else None


def good(entry: Mapping[str, Any] | None, settings: str) -> bool:
    """Whether an entry is a complete result of these settings, or of full ones."""
    return entry is not None and entry["complete"] and entry["settings"] in (settings, "full")


def read() -> dict[str, Any]:
    """What earlier runs have written, by item."""
    return json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}


def write(known: Mapping[str, Any]) -> None:
    """Write the results, in the items' order, and what comes with the package of those at full size."""
    write_text(RESULT, json.dumps({key: known[key] for key in ITEMS if key in known}, indent=1) + "\n")
    full = {key: entry for key, entry in known.items() if entry["settings"] == "full" and entry["complete"]}
    write_text(DATA / FILE, kept_rows(full))


def write_tables(known: dict[str, Any]) -> None:
    """The tables of docs/papers.md, between their marks, and the results in today's words."""
    for key, entry in known.items():
        entry["result"] = ITEMS[key].words(entry["rows"], entry["settings"])
    write(known)
    fill(PAGE, TABLE_BEGINS, TABLE_ENDS, overview())
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
