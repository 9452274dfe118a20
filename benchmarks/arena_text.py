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

from report import RESULTS, fill, narrow_table

from remat_explorer.quantities import format_bytes, format_overhead
from reproduction.arena_page import worst
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
    parts = [opening(name, known, verdicts), enough_text(verdicts), worst_table(verdicts), scarce_text(known)]
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
        f"schedule, and each passed the checker. In {proven} of these rows the schedule of `optimal` at the same peak "
        f"is proven best. In {beaten} the method's schedule is cheaper than that of `optimal`; {faults} refute a proof."
    )


def enough_text(verdicts: Sequence[Verdict]) -> str:
    """Which methods keep every budget of the graphs that they take and lose little, or that none does."""
    found = []
    for method in dict.fromkeys(v.method for v in verdicts):
        own = [v for v in verdicts if v.method == method]
        there = [v for v in own if any(o.peak is not None for o in own if o.graph == v.graph)]
        top = worst(own)
        if top is not None and (top.at_least or 0.0) <= ENOUGH and all(v.kept for v in there):
            found.append(f"`{method}`")
    return (
        "Methods that keep every budget of the graphs that they take, and lose at most "
        f"{100 * ENOUGH:g} % at the worst one: {', '.join(found) or 'none'}."
    )


def worst_table(verdicts: Sequence[Verdict]) -> str:
    """Each method with the budgets that it keeps, how many it loses much at, and the row in which it loses most."""
    rows = [("method", "kept", "loses over 5 %", "lost at worst, % (at most)", "where")]
    for method in dict.fromkeys(v.method for v in verdicts):
        own = [v for v in verdicts if v.method == method]
        kept, top = f"{sum(bool(v.kept) for v in own)}", worst(own)
        if top is None or top.at_least is None or top.peak is None:
            rows.append((f"`{method}`", kept, "", "", ""))
            continue
        lost = f"{100 * top.at_least:.1f}"
        at_most = lost if top.at_most is None else f"{100 * top.at_most:.1f}"
        much = f"{sum(bool(v.kept) and (v.at_least or 0.0) > ENOUGH for v in own)}"
        rows.append((f"`{method}`", kept, much, lost if lost == at_most else f"{lost} ({at_most})", top.graph))
    return narrow_table(rows[0], rows[1:])


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
    return "### Where memory is scarce\n\n" + narrow_table(
        ("budget, of what can be saved", "keep it", "lose more than 5 %"), rows
    )


def executed_text(known: dict[str, Any]) -> list[str]:
    """Who changed gradients or buffers when it ran."""
    ran = known.get("executed", ())
    if not ran:
        return []
    changed = {
        what: [f"`{e['method']}`" for e in ran if e[f"{what}_equal"] is False] for what in ("gradients", "buffers")
    }
    said = "; ".join(f"{what} were changed by {', '.join(names) or 'none'}" for what, names in changed.items())
    return ["### Bit for bit, on one small model", f"Of {len(ran)} runs, plain PyTorch among them: {said}."]


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
    said = (
        "A [user's model](https://github.com/pytorch/pytorch/issues/197838), for which a smaller "
        "`activation_memory_budget` takes more memory. Rows share a setting, not a memory: "
        "compare peaks and costs of different rows."
    )
    return ["### The model of PyTorch's issue 197838", said, narrow_table(columns, rows)] if rows else []


if __name__ == "__main__":
    main()
