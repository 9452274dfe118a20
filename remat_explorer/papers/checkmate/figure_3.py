"""Checkmate's Figure 3: features far outweigh parameters, network by network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
        row = {"network": name, "features": summary.feature_bytes, "parameters and inputs": summary.resident_bytes}
        rows.append(row | {"parameter gradients": summary.gradient_bytes, "checkpoint-all peak": summary.peak})

    def draw() -> Figure:
        from remat_explorer.figures import memory_breakdown

        return memory_breakdown(graphs, device_memory=DEVICE_MEMORY)

    return Outcome(words(rows, settings), tuple(rows), draw, complete=len(rows) == len(NETWORKS[settings]))


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


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The range of the shares; see `Item.words`."""
    if not rows:
        return "No network was captured before the run was cancelled."
    least, most = min(rows, key=share_of_features), max(rows, key=share_of_features)
    told = [f"{format_share(share_of_features(row))} ({row['network']})" for row in (least, most)]
    return (
        f"Of what is held at the peak of plain training, features and their gradients are at least {told[0]} to "
        f"{told[1]}, in {len(rows)} networks."
    )


ITEM = Item(
    key="checkmate-figure-3",
    paper="Checkmate",
    place="Figure 3",
    title="memory of features, parameters and gradients by network",
    notebook="02_why_memory_runs_out.ipynb",
    function="remat_explorer.figures.memory_breakdown",
    test="tests/papers/test_items.py",
    published="features far outweigh parameters in popular networks (Figure 3); advances in the memory of GPUs are "
    "quickly used up (Figure 3)",
    remark="The networks are the zoo's, some of them the paper's and some their kin, at the zoo's batches "
    "(DenseNet-161 at 128, BERT at 16); the text does not give the figure's. The rest is parameters, their "
    "gradients, buffers and inputs. All features together may be more than the peak, since some are dropped before it.",
    compute=figure_3,
    words=words,
)
