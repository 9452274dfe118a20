"""Checkmate's Figures 1 and 3: memory along a training step, and how far features outweigh parameters in networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solvers import checkpoint_all, checkpoint_all_peak, solve
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener
from reproduction.layer_graphs import captured_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


BUDGET = 9 * 10**9  # the published 30 GB less 21 GB
FIGURE_1_SECONDS = {"small": 10.0, "full": 60.0}
GB = 10**9


def figure_1(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The network at its published size in both settings; full ones only give the solver more time."""
    progress("capturing linear32")
    graph = captured_graph("linear32", "V100-roofline")
    most = checkpoint_all_peak(graph)
    hear = progress_listener(progress, "9 GB")
    best = solve(graph, BUDGET, time_limit=FIGURE_1_SECONDS[settings], on_progress=hear, cancelled=cancelled)
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

    return Outcome(figure_1_words(rows, settings), tuple(rows), draw, complete=not cancelled())


def figure_1_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
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


FIGURE_1 = Item(
    key="checkmate-figure-1",
    paper="Checkmate",
    place="Figure 1",
    title="a 32-layer network with and without rematerialization",
    notebook="02_why_memory_runs_out.ipynb",
    function="remat_explorer.figures.memory_timeline",
    test="tests/reproduction/test_exact_items.py",
    published="30 GB to keep everything, 21 GB less with rematerialization, at a modest increase in time (Figure 1)",
    remark="The paper does not give the layers; these are 3 x 3 convolutions to 64 channels at batch 71, chosen to "
    "need 30 GB. A notebook of the authors' artifact draws such a figure from a chain of 32 layers of unit cost and "
    "size. Costs are a V100's published rates, not a profile.",
    compute=figure_1,
    words=figure_1_words,
)


NETWORKS: dict[Settings, dict[str, int | None]] = {  # None for the zoo's batch
    "small": {"vgg19": None, "resnet50": None, "fcn8": None},
    "full": {"vgg19": None, "googlenet": None, "resnet50": None, "densenet161": 128, "fcn8": None, "bert": 16},
}
DEVICE_MEMORY = 16 * 10**9


def figure_3(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Each network at its published size; nothing of it is allocated."""
    graphs: list[Graph] = []
    rows = []
    for name, batch in NETWORKS[settings].items():
        if cancelled():
            break
        progress(f"capturing {name}")
        graph = captured_graph(name, "V100-roofline", batch)
        graphs.append(graph)
        summary = graph.summary()
        row = {"network": name, "features": summary.feature_bytes, "parameters and inputs": summary.resident_bytes}
        rows.append(row | {"parameter gradients": summary.gradient_bytes, "checkpoint-all peak": summary.peak})

    def draw() -> Figure:
        from remat_explorer.figures import memory_breakdown

        return memory_breakdown(graphs, device_memory=DEVICE_MEMORY)

    return Outcome(figure_3_words(rows, settings), tuple(rows), draw, complete=len(rows) == len(NETWORKS[settings]))


def share_of_features(row: Mapping[str, Any]) -> float:
    """The least share of the peak that features and their gradients take: all but what the parameters account for.

    Features that only the forward pass reads are gone at the peak, and some parameter gradients are not there yet, so
    that all of them may be more than the peak. What is resident is there, and at most all parameter gradients.

    Args:
        row: bytes of a network, as the item has them.

    >>> share_of_features({"parameters and inputs": 10, "parameter gradients": 5, "checkpoint-all peak": 100})
    0.85
    """
    return 1 - (row["parameters and inputs"] + row["parameter gradients"]) / row["checkpoint-all peak"]


def figure_3_words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The range of the shares; see `Item.words`."""
    if not rows:
        return "No network was captured before the run was cancelled."
    least, most = min(rows, key=share_of_features), max(rows, key=share_of_features)
    told = [f"{format_share(share_of_features(row))} ({row['network']})" for row in (least, most)]
    return (
        f"Of what is held at the peak of plain training, features and their gradients are at least {told[0]} to "
        f"{told[1]}, in {len(rows)} networks."
    )


FIGURE_3 = Item(
    key="checkmate-figure-3",
    paper="Checkmate",
    place="Figure 3",
    title="memory of features, parameters and gradients by network",
    notebook="02_why_memory_runs_out.ipynb",
    function="remat_explorer.figures.memory_breakdown",
    test="tests/reproduction/test_items.py",
    published="features far outweigh parameters in popular networks (Figure 3); advances in the memory of GPUs are "
    "quickly used up (Figure 3)",
    remark="The networks are the zoo's, some of them the paper's and some their kin, at the zoo's batches "
    "(DenseNet-161 at 128, BERT at 16); the text does not give the figure's. The rest is parameters, their "
    "gradients, buffers and inputs. All features together may be more than the peak, since some are dropped before it.",
    compute=figure_3,
    words=figure_3_words,
)
