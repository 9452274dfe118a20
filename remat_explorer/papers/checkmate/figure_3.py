"""Checkmate's Figure 3: features far outweigh parameters, network by network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_explorer.graph import Graph
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import captured_graph
from remat_explorer.quantities import format_share

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
        total = summary.resident_bytes + summary.gradient_bytes + summary.feature_bytes + summary.workspace_bytes
        row = {"network": name, "features": summary.feature_bytes, "parameters and inputs": summary.resident_bytes}
        row |= {"parameter gradients": summary.gradient_bytes, "checkpoint-all peak": summary.peak}
        rows.append(row | {"share of features": summary.feature_bytes / total})
    shares = [row["share of features"] for row in rows]
    result = (
        f"Features are {format_share(min(shares))} to {format_share(max(shares))} of what training holds in "
        f"{len(rows)} networks at their published batch sizes."
        if shares
        else "No network was captured before the run was cancelled."
    )

    def draw() -> Figure:
        from remat_explorer.figures import memory_breakdown

        return memory_breakdown(graphs, device_memory=DEVICE_MEMORY)

    return Outcome(result, tuple(rows), draw, complete=len(rows) == len(NETWORKS[settings]))


ITEM = Item(
    key="checkmate-figure-3",
    paper="Checkmate",
    place="Figure 3",
    title="memory of features, parameters and gradients by network",
    notebook="02_why_memory_runs_out.ipynb",
    function="remat_explorer.figures.memory_breakdown",
    test="tests/papers/test_items.py",
    published="features far outweigh parameters in popular networks, and fill the memory of the GPUs of their time",
    remark="Those of the paper's networks that the zoo has, or their kin, at the zoo's batch sizes. A graph does not "
    "tell parameters, inputs and buffers apart.",
    compute=figure_3,
)
