"""Checkmate's Figure 1: memory along the training step of a 32-layer network, with and without rematerialization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import captured_graph
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, solve

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BUDGET = 9 * 10**9  # the published 30 GB less 21 GB
SECONDS = {"small": 10.0, "full": 60.0}
GB = 10**9


def figure_1(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The network at its published size in both settings; full ones only give the solver more time."""
    progress("capturing linear32")
    graph = captured_graph("linear32", "V100-roofline")
    most = checkpoint_all_peak(graph)
    hear = heard(progress, "9 GB")
    best = solve(graph, BUDGET, time_limit=SECONDS[settings], on_progress=hear, cancelled=cancelled)
    least = {"schedule": "everything kept", "peak": most, "overhead": 1.0, "gap": 0.0, "recomputations": 0}
    rows = [least]
    if best.schedule is not None and best.overhead is not None and best.peak is not None:
        row = {"schedule": "rematerialized", "peak": best.peak, "overhead": best.overhead, "gap": best.gap}
        rows.append(row | {"recomputations": best.schedule.recomputations})

    def draw() -> Figure:
        from remat_explorer.figures import memory_timeline
        from remat_explorer.plan import Plan

        everything = Plan.of(checkpoint_all(graph))
        plan = best.plan or everything
        figure = memory_timeline(plan, budget=BUDGET, other=everything)
        return figure.update_layout(title="linear32: memory along the step", height=380, margin={"t": 90})

    return Outcome(words(rows, settings), tuple(rows), draw, complete=not cancelled())


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """What is needed, and what is saved at which cost; see `Item.words`."""
    most = rows[0]["peak"]
    if len(rows) == 1:
        return f"Keeping everything needs {most / GB:.1f} GB; no schedule of 9 GB was found in time."
    row = rows[1]
    proven = "without a proven bound" if row["gap"] is None else f"gap {format_share(row['gap'])}"
    return (
        f"Keeping everything needs {most / GB:.1f} GB; a schedule of {row['peak'] / GB:.1f} GB saves "
        f"{(most - row['peak']) / GB:.1f} GB at {format_overhead(row['overhead'])} cost (V100 roofline, {proven})."
    )


ITEM = Item(
    key="checkmate-figure-1",
    paper="Checkmate",
    place="Figure 1",
    title="a 32-layer network with and without rematerialization",
    notebook="02_why_memory_runs_out.ipynb",
    function="remat_explorer.figures.memory_timeline",
    test="tests/papers/test_exact_items.py",
    published="30 GB to keep everything, 21 GB less with rematerialization, at a modest increase in time (Figure 1)",
    remark="The paper does not give the layers; these are 3 x 3 convolutions to 64 channels at batch 71, chosen to "
    "need 30 GB. A notebook of the authors' artifact draws such a figure from a chain of 32 layers of unit cost and "
    "size. Costs are a V100's published rates, not a profile.",
    compute=figure_1,
    words=words,
)
