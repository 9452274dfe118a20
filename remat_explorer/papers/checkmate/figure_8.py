"""Checkmate's Figure 8: randomized against deterministic rounding of one linear program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.papers.checkmate.approximation import budget_at
from remat_explorer.papers.drawing import side_by_side
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_overhead
from remat_explorer.solution import Solution
from remat_explorer.solvers import solve
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.methods.checkmate_approx import EPSILON, THRESHOLD
from remat_explorer.solvers.methods.two_phase_rounding import (
    Scatter,
    reduced_budget,
    round_deterministically,
    scatter,
    solve_linear_program,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BATCHES: dict[Settings, dict[str, int]] = {
    "small": {"VGG16": 256},
    "full": {"VGG16": 256, "MobileNet": 512, "U-Net": 32},
}
FRACTIONS = {"VGG16": 0.6, "MobileNet": 0.6, "U-Net": 0.9}  # of `budget_at`: large enough for some rounding to fit
SAMPLES = {"small": 200, "full": 1000}
GB = 10**9
SECONDS = {"small": 10.0, "full": 300.0}


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
    return Outcome(words(rows, settings), tuple(rows), draw, complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """Both ways of rounding, network by network; see `Item.words`."""
    return " ".join(map(_sentence, rows))


def _roundings(name: str, batch: int, settings: Settings, progress: Tell, cancelled: Cancelled) -> Roundings | None:
    graph = layer_graph(name, batch)
    budget = budget_at(graph, FRACTIONS[name])
    limits = Limits(SECONDS[settings], report=heard(progress, name), cancelled=cancelled)
    relaxed = solve_linear_program(Condensed.of(graph), reduced_budget(graph, budget, EPSILON), limits)
    if relaxed.status != "solved":
        return None
    progress(f"{name}: drawing {SAMPLES[settings]} schedules")
    randomized = scatter(relaxed, SAMPLES[settings], over=cancelled)
    rounded = round_deterministically(relaxed.condensed, relaxed.S, THRESHOLD)
    deterministic = Scatter(np.array([rounded.cost]), np.array([Plan.of(rounded).peak], dtype=np.int64))
    hear = heard(progress, name)
    optimal = solve(graph, budget, time_limit=SECONDS["small"], on_progress=hear, cancelled=cancelled)
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


ITEM = Item(
    key="checkmate-figure-8",
    paper="Checkmate",
    place="Figure 8",
    title="randomized against deterministic rounding",
    notebook="05_heuristics_and_rounding.ipynb",
    function="remat_explorer.figures.rounding_scatter",
    test="tests/papers/test_items.py",
    published="deterministic rounding gives consistently cheaper schedules than randomized rounding (appendix D)",
    remark="FLOP costs in place of profiled milliseconds. The paper names a budget of 16 GB (appendix D), and no "
    "batches; these are 256, 512 and 32, and the budgets are chosen so that some rounding fits, with an "
    "allowance of a tenth of what is not always in memory.",
    compute=figure_8,
    words=words,
)
