"""The part of docs/arena.md that is made of results: the tables, and what follows from them with the rows that show it.

    python benchmarks/arena_text.py arena

The name is that of a file of results; what stands between the two marks of the page is replaced.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import RESULTS, fill, table

from remat_explorer.quantities import format_bytes, format_overhead
from reproduction.arena_page import heat_cell, worst
from reproduction.judge import Verdict

PAGE = Path(__file__).parents[1] / "docs" / "arena.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
ENOUGH = 0.05  # distance from the optimum up to which a method is called enough


def main() -> None:
    """Write the page anew."""
    name = sys.argv[1] if len(sys.argv) > 1 else "arena"
    known = json.loads((RESULTS / f"{name}.json").read_text())["details"]
    fill(PAGE, BEGIN, END, results(name, known))


def results(name: str, known: dict[str, Any]) -> str:
    """What stands between the marks.

    Args:
        name: of the file of results.
        known: its details.
    """
    verdicts = [Verdict.from_document(v) for entry in known["graphs"].values() for v in entry["verdicts"]]
    parts = [opening(name, known, verdicts), heat_table(verdicts), *claims(known, verdicts)]
    return "\n\n".join([*parts, *executed_text(known), *reported_text(known)])


def opening(name: str, known: dict[str, Any], verdicts: Sequence[Verdict]) -> str:
    """How many rows there are, and how much of that is proven."""
    found = [v for v in verdicts if v.peak is not None]
    proven = sum(v.status == "optimal" for v in found)
    beaten = sum(v.at_least is not None and v.at_least < -1e-9 for v in found)
    faults = sum(bool(v.fault) for v in verdicts)
    budgets = len(known["settings"]["places"])
    return (
        f"From `benchmarks/results/{name}.json`: {len(known['graphs'])} graphs, {budgets} budgets each, "
        f"{len(known['settings']['methods'])} methods; {known['settings']['seconds']:g} s for a method at a budget, "
        f"{known['settings']['proof_seconds']:g} s for ours at a peak. {len(found)} of {len(verdicts)} rows have a "
        f"schedule, and each passed the checker. At the peaks of {proven} of them ours is proven optimal. Ours costs "
        f"more than the method at its own peak in {beaten}, and {faults} refute a claim."
    )


def heat_table(verdicts: Sequence[Verdict]) -> str:
    """The heat map as a table: what each method costs above ours at its worst budget, per cent."""
    graphs, methods = dict.fromkeys(v.graph for v in verdicts), dict.fromkeys(v.method for v in verdicts)
    rows = []
    for method in methods:
        own = [v for v in verdicts if v.method == method]
        cells = [heat_cell([v for v in own if v.graph == graph]) for graph in graphs]
        rows.append([f"`{method}`", *cells, f"{sum(bool(v.kept) for v in own)} of {len(own)}"])
    return table(["lost at the worst budget, %", *graphs, "budgets kept"], rows)


def claims(known: dict[str, Any], verdicts: Sequence[Verdict]) -> list[str]:
    """What follows, each with its row."""
    enough, fitting, far = [], [], []
    for method in dict.fromkeys(v.method for v in verdicts):
        own = [v for v in verdicts if v.method == method]
        top = worst(own)
        if top is None or top.at_least is None:
            continue
        there = [v for v in own if any(o.peak is not None for o in own if o.graph == v.graph)]
        missed = sum(not v.kept for v in there)
        group = far if top.at_least > ENOUGH else fitting if missed else enough
        said = f"- `{method}`: {row_text(top)}"
        group.append(said + (f"; misses {missed} of {len(there)} budgets" if missed else "") + ".")
    return [
        "### When a rule is enough",
        "These keep every budget of the graphs that they take, and lose at most 5 % at the worst one:",
        "\n".join(enough) or "- none.",
        "These lose at most 5 % where they keep the budget, but do not always keep it:",
        "\n".join(fitting) or "- none.",
        "### When it costs more than 5 %",
        "The worst row of each method that somewhere loses more:",
        "\n".join(far) or "- none.",
        "### Where memory is scarce",
        scarce_text(known),
    ]


def row_text(verdict: Verdict) -> str:
    """A row in words."""
    at_most = "" if verdict.at_most is None else f", at most {100 * verdict.at_most:.2f} % above the bound"
    assert verdict.peak is not None
    return (
        f"{100 * (verdict.at_least or 0.0):.2f} % above ours on {verdict.graph} at {format_bytes(verdict.peak)} of "
        f"{format_bytes(verdict.budget)}{at_most}"
    )


def scarce_text(known: dict[str, Any]) -> str:
    """How many rows lose more than 5 % at each budget, of those that keep it, and how many have no schedule in it."""
    rows = []
    for i, place in enumerate(known["settings"]["places"]):
        found = [
            Verdict.from_document(v)
            for entry in known["graphs"].values()
            for v in entry["verdicts"]
            if v["budget"] == entry["budgets"][i]
        ]
        kept = [v for v in found if v.kept and v.at_least is not None]
        lost = sum((v.at_least or 0.0) > ENOUGH for v in kept)
        rows.append([f"{100 * place:g} %", f"{len(kept)} of {len(found)}", f"{lost} of {len(kept)}"])
    return table(["budget, of what can be saved", "keep it", "lose more than 5 %"], rows)


def executed_text(known: dict[str, Any]) -> list[str]:
    """Who changed gradients or buffers when it ran."""
    rows = [
        [
            f"`{entry['method']}`",
            "" if entry["measured_peak"] is None else format_bytes(entry["measured_peak"]),
            *({True: "equal", False: "CHANGED", None: ""}[entry[key]] for key in ("gradients_equal", "buffers_equal")),
        ]
        for entry in known.get("executed", ())
    ]
    heading = "### Who changed the gradients"
    return [heading, table(["executed", "measured peak", "gradients", "buffers"], rows)] if rows else []


def reported_text(known: dict[str, Any]) -> list[str]:
    """PyTorch's budget beside ours, on the model of the issue."""
    rows = [
        [
            f"{row['share']:.2f}",
            format_bytes(row["torch"]),
            format_overhead(row["torch_overhead"]),
            format_bytes(row["budget"]),
            format_bytes(row["ours"]),
            format_overhead(row["ours_overhead"]),
        ]
        for row in known.get("reported", ())
    ]
    columns = ["setting", "PyTorch, measured peak", "cost", "our budget", "ours, measured peak", "cost"]
    return ["### The model of pytorch 197838", table(columns, rows)] if rows else []


if __name__ == "__main__":
    main()
