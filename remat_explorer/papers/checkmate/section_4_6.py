"""Checkmate's section 4.6: the same optimum with stages and without, and what either takes to prove it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.instances import linear
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.quantities import format_seconds, format_share
from remat_explorer.solution import Status
from remat_explorer.solvers import STRATEGIES, solve

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FORMS = {"checkmate-ilp": "with stages", "checkmate-unpartitioned": "without stages"}
CHAINS: dict[Settings, tuple[tuple[int, int], ...]] = {  # layers and budget
    "small": ((2, 4), (3, 4), (8, 4)),
    "full": ((2, 4), (3, 4), (4, 4), (4, 3), (8, 4)),
}
SECONDS = {"small": 4.0, "full": 3600.0}  # of the form without stages, on eight layers
ENOUGH = 600.0  # of everything else, which ends with a proof
PUBLISHED = (8, 4)


def section_4_6(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Both forms on chains of growing length; the last is the paper's: 17 operations, budget 4."""
    rows: list[dict[str, Any]] = []
    for layers, budget in CHAINS[settings]:
        for strategy, form in FORMS.items():
            if cancelled():
                break
            hard = (layers, budget) == PUBLISHED and not STRATEGIES[strategy].stages
            limit = SECONDS[settings] if hard else ENOUGH
            begun = time.process_time()
            hear = heard(progress, f"{layers} layers {form}")
            solution = solve(linear(layers), budget, strategy, limit, on_progress=hear, cancelled=cancelled)
            row = {"layers": layers, "operations": 2 * layers + 1, "budget": budget, "form": form}
            row |= {"status": str(solution.status), "cost": solution.cost, "lower bound": solution.lower_bound}
            row |= {"gap": solution.gap, "seconds": solution.seconds, "processor seconds": time.process_time() - begun}
            rows.append(row)
    complete = len(rows) == len(FORMS) * len(CHAINS[settings])
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The times of both forms; see `Item.words`."""
    last = [row for row in rows if (row["layers"], row["budget"]) == PUBLISHED]
    smaller: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        if row["layers"] < PUBLISHED[0] and row["status"] == Status.OPTIMAL:
            smaller.setdefault((row["layers"], row["budget"]), []).append(row["processor seconds"])
    ratios = [times[1] / times[0] for times in smaller.values() if len(times) == len(FORMS)]
    result = f"Eight layers, budget 4: {'; '.join(map(_told, last))}.{_ratio(last)}"
    if not ratios:
        return result
    return f"{result} Smaller chains are proven in both forms, without stages in up to {max(ratios):.0f} times as long."


def _ratio(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many times as long the form without stages takes, at least."""
    if len(rows) < len(FORMS):
        return ""
    staged, free = (row["processor seconds"] for row in rows)
    if rows[1]["status"] == Status.OPTIMAL:
        return f" That is {free / staged:.0f} times as long."
    return f" That is more than {math.floor(free / staged)} times as long."


def _told(row: Mapping[str, Any]) -> str:
    if row["status"] == Status.OPTIMAL:
        return f"{row['form']} the optimum {row['cost']:g} is proven in {format_seconds(row['processor seconds'])}"
    best = "no schedule" if row["cost"] is None else f"a schedule of {row['cost']:g}"
    gap = "" if row["gap"] is None else f", gap {format_share(row['gap'])}"
    spent = format_seconds(row["processor seconds"])
    return f"{row['form']} {best} and a bound of {row['lower bound']:g}{gap} after {spent}"


def _draw(rows: list[dict[str, Any]]) -> Figure:
    by_chain: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = f"{row['layers']} layers, budget {row['budget']}"
        by_chain.setdefault(name, {"chain": name})[row["form"]] = row["processor seconds"]
        if row["status"] != Status.OPTIMAL:
            by_chain[name]["chain"] = f"{name} (without stages not proven)"
    columns = {form: form for form in FORMS.values()}
    return bars(list(by_chain.values()), "chain", columns, "processor seconds", logarithmic=True)


ITEM = Item(
    key="checkmate-section-4-6",
    paper="Checkmate",
    place="section 4.6",
    title="solving with stages and without",
    notebook="04_the_integer_program.ipynb",
    function="rx.solve",
    test="tests/papers/test_exact_items.py",
    published="eight layers, budget 4: 9.4 hours without stages, 0.23 seconds with them, to the same objective "
    "(section 4.6)",
    remark="The paper's times are Gurobi's, and their ratio is about 147,000; these are HiGHS's on one thread, in "
    "seconds of the processor. Proven without stages are chains of up to 9 operations. The 17 of the paper ended "
    "unproven after an hour of a shared machine: the gap is named, and the ratio is a lower bound. The paper does not "
    "print the objective.",
    compute=section_4_6,
    words=words,
)
