"""Checkmate's rounding: no draw of both matrices is feasible (section 5.1); random against deterministic (Figure 8).

Section 5.1 draws 50,000 times from VGG16's linear program; Figure 8 rounds one linear program in both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solvers import (
    EPSILON,
    THRESHOLD,
    CondensedGraph,
    Limits,
    Scatter,
    Solution,
    checkpoint_all_peak,
    largest_operation,
    naive_rounding,
    reduced_budget,
    round_deterministically,
    scatter,
    solve,
    solve_linear_program,
)
from reproduction.checkmate_approximations import budget_at
from reproduction.drawing import bars, side_by_side
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener
from reproduction.layer_graphs import layer_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


NETWORK, BATCH = "VGG16", 256
SECTION_5_1_FRACTIONS = (0.0, 0.05, 0.1, 0.2)  # of `budget_at`, from the largest operation alone upwards
SECTION_5_1_SAMPLES = {"small": 2000, "full": 50_000}
SECTION_5_1_SECONDS = 60.0
GB = 10**9


def section_5_1(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Both matrices drawn entry by entry, at the budgets at which the linear program is fractional."""
    graph = layer_graph(NETWORK, BATCH)
    condensed, samples = CondensedGraph.of(graph), SECTION_5_1_SAMPLES[settings]
    everything, alone = checkpoint_all_peak(graph), largest_operation(graph)[1]
    rows: list[dict[str, Any]] = []
    for fraction in SECTION_5_1_FRACTIONS:
        if cancelled():
            break
        budget = budget_at(graph, fraction)
        limits = Limits(
            SECTION_5_1_SECONDS,
            report=progress_listener(progress, f"{NETWORK} at {budget / GB:.2f} GB"),
            cancelled=cancelled,
        )
        relaxed = solve_linear_program(condensed, budget, limits)
        row = {"network": NETWORK, "budget": budget, "everything kept": everything, "largest operation": alone}
        row |= {"linear program": relaxed.status, "samples": samples}
        if relaxed.status == "solved":
            progress(f"{NETWORK}: drawing {samples} roundings")
            drawn = naive_rounding(relaxed, budget, samples)
            row |= {"bound": relaxed.bound / graph.total_cost, "schedules": drawn.correct, "feasible": drawn.feasible}
            row |= {"nearest is feasible": drawn.nearest_feasible}
        rows.append(row)
    complete = len(rows) == len(SECTION_5_1_FRACTIONS)
    return Outcome(section_5_1_words(rows, settings), tuple(rows), lambda: _draw_section_5_1(rows), complete)


def section_5_1_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
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


def _draw_section_5_1(rows: Sequence[Mapping[str, Any]]) -> Figure:
    table = [
        {"budget": f"{row['budget'] / GB:.2f} GB"} | {key: row.get(key) for key in ("schedules", "feasible")}
        for row in rows
    ]
    columns = {"schedules": "keep the rules (1b) to (1e)", "feasible": "fit into the budget as well"}
    figure = bars(table, "budget", columns, f"draws of {rows[0]['samples'] if rows else 0}")
    return figure.update_xaxes(title_text="budget, of the linear program and of the draws")


SECTION_5_1 = Item(
    key="checkmate-section-5-1",
    paper="Checkmate",
    place="section 5.1",
    title="randomized rounding of both matrices",
    notebook="05_heuristics_and_rounding.ipynb",
    function="remat_explorer.solvers.methods.two_phase_rounding.naive_rounding",
    test="tests/reproduction/test_items.py",
    published="VGG16 at a budget four times smaller than the default: none of 50,000 samples feasible (section 5.1)",
    remark="The paper prints neither the batch nor the default. A fourth of what keeping everything takes is less than "
    "one operation needs on this graph, so that no schedule exists there; these are the smallest budgets. Where more "
    "memory makes R and S integral, all draws are the same.",
    compute=section_5_1,
    words=section_5_1_words,
)


BATCHES: dict[Settings, dict[str, int]] = {
    "small": {"VGG16": 256},
    "full": {"VGG16": 256, "MobileNet": 512, "U-Net": 32},
}
FIGURE_8_FRACTIONS = {
    "VGG16": 0.6,
    "MobileNet": 0.6,
    "U-Net": 0.9,
}  # of `budget_at`: large enough for some rounding to fit
FIGURE_8_SAMPLES = {"small": 200, "full": 1000}
FIGURE_8_SECONDS = {"small": 10.0, "full": 300.0}


@dataclass(frozen=True, eq=False)
class Roundings:
    """The roundings of one network.

    Attributes:
        graph: the network.
        budget: bytes; the linear program has a tenth less of what is not resident.
        randomized: cost and peak of each draw.
        deterministic: cost and peak of the one schedule of threshold 1/2.
        optimal: the best known schedule within the budget.
    """

    graph: Graph
    budget: int
    randomized: Scatter
    deterministic: Scatter
    optimal: Solution

    def row(self, name: str) -> dict[str, Any]:
        """What the item's data say of the network."""
        fits = self.randomized.peak <= self.budget
        total = self.graph.total_cost
        cheapest = float(self.randomized.cost[fits].min() / total) if fits.any() else None
        drawn = {"draws": len(fits), "draws that fit": int(fits.sum())}
        drawn |= {"mean": float(self.randomized.cost.mean() / total)}
        fixed = {"deterministic": float(self.deterministic.cost[0] / total)}
        fixed |= {"deterministic peak": int(self.deterministic.peak[0]), "optimal": self.optimal.overhead}
        points = {"costs": self.randomized.cost.tolist(), "peaks": self.randomized.peak.tolist()}
        return {"network": name, "budget": self.budget} | drawn | {"cheapest that fits": cheapest} | fixed | points


def figure_8(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """One linear program for each network, a thousand draws and the one deterministic rounding."""
    rounded: dict[str, Roundings] = {}
    late: list[dict[str, Any]] = []
    for name, batch in BATCHES[settings].items():
        if cancelled():
            break
        roundings = _roundings(name, batch, settings, progress, cancelled)
        if roundings is None:
            late.append({"network": name, "status": "the linear program was not solved"})
        else:
            rounded[name] = roundings
    rows = [*(roundings.row(name) for name, roundings in rounded.items()), *late]

    def draw() -> Figure:
        from remat_explorer.figures import rounding_scatter

        figures = [
            rounding_scatter(drawn.graph, drawn.randomized, drawn.deterministic, drawn.optimal, drawn.budget)
            for drawn in rounded.values()
        ]
        return side_by_side(figures, list(rounded))

    complete = len(rounded) + len(late) == len(BATCHES[settings]) and not cancelled()
    return Outcome(figure_8_words(rows, settings), tuple(rows), draw, complete)


def figure_8_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Both ways of rounding, network by network; see `Item.words`."""
    return " ".join(map(_sentence, rows))


def _roundings(name: str, batch: int, settings: Settings, progress: Tell, cancelled: Cancelled) -> Roundings | None:
    graph = layer_graph(name, batch)
    budget = budget_at(graph, FIGURE_8_FRACTIONS[name])
    limits = Limits(FIGURE_8_SECONDS[settings], report=progress_listener(progress, name), cancelled=cancelled)
    relaxed = solve_linear_program(CondensedGraph.of(graph), reduced_budget(graph, budget, EPSILON), limits)
    if relaxed.status != "solved":
        return None
    progress(f"{name}: drawing {FIGURE_8_SAMPLES[settings]} schedules")
    randomized = scatter(relaxed, FIGURE_8_SAMPLES[settings], over=cancelled)
    rounded = round_deterministically(relaxed.condensed, relaxed.S, THRESHOLD)
    deterministic = Scatter(np.array([rounded.cost]), np.array([Plan.of(rounded).peak], dtype=np.int64))
    hear = progress_listener(progress, name)
    optimal = solve(graph, budget, time_limit=FIGURE_8_SECONDS["small"], on_progress=hear, cancelled=cancelled)
    return Roundings(graph, budget, randomized, deterministic, optimal)


def _sentence(row: Mapping[str, Any]) -> str:
    if "status" in row:
        return f"{row['network']}: {row['status']}."
    fits = "fits" if row["deterministic peak"] <= row["budget"] else "does not fit"
    cheapest = row["cheapest that fits"]
    random = "none of them fits" if cheapest is None else f"the cheapest that fits costs {format_overhead(cheapest)}"
    fixed, drawn = (format_overhead(row[column]) for column in ("deterministic", "mean"))
    return (
        f"{row['network']} at {row['budget'] / GB:.1f} GB: rounding at one half costs {fixed} and {fits}; "
        f"{row['draws']} random draws cost {drawn} in the mean, {random}."
    )


FIGURE_8 = Item(
    key="checkmate-figure-8",
    paper="Checkmate",
    place="Figure 8",
    title="randomized against deterministic rounding",
    notebook="05_heuristics_and_rounding.ipynb",
    function="remat_explorer.figures.rounding_scatter",
    test="tests/reproduction/test_items.py",
    published="deterministic rounding gives consistently cheaper schedules than randomized rounding (appendix D)",
    remark="FLOP costs in place of profiled milliseconds. The paper names a budget of 16 GB (appendix D), and no "
    "batches; these are 256, 512 and 32, and the budgets are chosen so that some rounding fits, with an "
    "allowance of a tenth of what is not always in memory.",
    compute=figure_8,
    words=figure_8_words,
)
