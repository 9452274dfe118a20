"""Checkmate's section 5.1: of 50,000 randomized roundings of VGG16's linear program none is feasible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.papers.checkmate.approximation import budget_at
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph
from remat_explorer.quantities import format_share
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.budgets import largest_operation
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods.two_phase_rounding import naive_rounding, solve_linear_program

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NETWORK, BATCH = "VGG16", 256
FRACTIONS = (0.0, 0.05, 0.1, 0.2)  # of `budget_at`, from the largest operation alone upwards
SAMPLES = {"small": 2000, "full": 50_000}
SECONDS = 60.0
GB = 10**9


def section_5_1(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Both matrices drawn entry by entry, at the budgets at which the linear program is fractional."""
    graph = layer_graph(NETWORK, BATCH)
    condensed, samples = Condensed.of(graph), SAMPLES[settings]
    everything, alone = checkpoint_all_peak(graph), largest_operation(graph)[1]
    rows: list[dict[str, Any]] = []
    for fraction in FRACTIONS:
        if cancelled():
            break
        budget = budget_at(graph, fraction)
        limits = Limits(SECONDS, report=heard(progress, f"{NETWORK} at {budget / GB:.2f} GB"), cancelled=cancelled)
        relaxed = solve_linear_program(condensed, budget, limits)
        row = {"network": NETWORK, "budget": budget, "everything kept": everything, "largest operation": alone}
        row |= {"linear program": relaxed.status, "samples": samples}
        if relaxed.status == "solved":
            progress(f"{NETWORK}: drawing {samples} roundings")
            drawn = naive_rounding(relaxed, budget, samples)
            row |= {"bound": relaxed.bound / graph.total_cost, "schedules": drawn.correct, "feasible": drawn.feasible}
            row |= {"nearest is feasible": drawn.nearest_feasible}
        rows.append(row)
    complete = len(rows) == len(FRACTIONS)
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """How many draws are schedules, and how many fit, at each budget; see `Item.words`."""
    if not rows:
        return "No budget was reached before the run was cancelled."
    first = rows[0]
    share = format_share(first["largest operation"] / first["everything kept"])
    parts = [
        f"{row['feasible']} of {row['samples']} draws at {row['budget'] / GB:.2f} GB ({row['schedules']} are schedules)"
        for row in rows
        if "feasible" in row
    ]
    return (
        f"{NETWORK} at batch {BATCH}, R and S drawn entry by entry: feasible are {', '.join(parts)}. Everything kept "
        f"takes {first['everything kept'] / GB:.2f} GB, of which one operation alone needs {share}."
    )


def _draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    table = [
        {"budget": f"{row['budget'] / GB:.2f} GB"} | {key: row.get(key) for key in ("schedules", "feasible")}
        for row in rows
    ]
    columns = {"schedules": "keep the rules (1b) to (1e)", "feasible": "fit into the budget as well"}
    figure = bars(table, "budget", columns, f"draws of {rows[0]['samples'] if rows else 0}")
    return figure.update_xaxes(title_text="budget, of the linear program and of the draws")


ITEM = Item(
    key="checkmate-section-5-1",
    paper="Checkmate",
    place="section 5.1",
    title="randomized rounding of both matrices",
    notebook="05_heuristics_and_rounding.ipynb",
    function="remat_explorer.solvers.methods.two_phase_rounding.naive_rounding",
    test="tests/papers/test_items.py",
    published="VGG16 at a budget four times smaller than the default: none of 50,000 samples feasible (section 5.1)",
    remark="The paper prints neither the batch nor the default. A fourth of what keeping everything takes is less than "
    "one operation needs on this graph, so that no schedule exists there; these are the smallest budgets. Where more "
    "memory makes R and S integral, all draws are the same.",
    compute=section_5_1,
    words=words,
)
