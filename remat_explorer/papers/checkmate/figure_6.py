"""Checkmate's Figure 6: the largest batch within 16 GB at one extra forward pass, and parameters counted twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.papers.checkmate.accounting import kept_for_good_peak, largest_batch
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph, published_batches
from remat_explorer.solvers import max_batch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MEMORY = 16 * 10**9
NETWORKS: dict[Settings, tuple[str, ...]] = {
    "small": ("VGG19", "MobileNet", "U-Net"),
    "full": ("VGG19", "MobileNet", "U-Net", "SegNet", "VGG16", "ResNet50"),
}
SECONDS = {"small": 10.0, "full": 60.0}
COLUMNS = {
    "everything kept, parameters twice": "everything kept, parameters twice",
    "everything kept": "everything kept",
    "Chen, parameters twice": "Chen √n, parameters twice",
    "Chen": "Chen √n",
    "published": "published for Checkmate",
    "batch": "found here",
}


def figure_6(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The largest batch of each network, with its bound, beside those of the baselines counted both ways."""
    rows = []
    for name in NETWORKS[settings]:
        if cancelled():
            break
        graph = layer_graph(name)
        hear = heard(progress, name)
        largest = max_batch(graph, MEMORY, time_limit=SECONDS[settings], on_progress=hear, cancelled=cancelled)
        row = {"network": name, "batch": largest.batch, "upper bound": largest.upper_bound, "proven": largest.optimal}
        row |= {"published": published_batches(name)["paper_checkmate"], "seconds": largest.seconds}
        rows.append(
            row | counted_both_ways(name, graph) | {"everything kept, by liveness": largest.checkpoint_all_batch}
        )
    return Outcome(
        _sentence(rows),
        tuple(rows),
        lambda: _draw(rows),
        complete=len(rows) == len(NETWORKS[settings]) and not cancelled(),
    )


def counted_both_ways(name: str, graph: Graph) -> dict[str, int | None]:
    """Largest batches of keeping everything and of Chen's square root, parameters counted once (right) and twice.

    The peak of keeping everything is worked out here; that of Chen's method at batch 1 is the published program's.

    Args:
        name: a network of `remat_explorer.papers.networks.LAYERS`.
        graph: the network at batch 1.

    >>> counted_both_ways("VGG19", layer_graph("VGG19"))["Chen"]
    213
    """
    published = published_batches(name)
    peaks = {"everything kept": kept_for_good_peak(graph)}
    peaks["Chen"] = published["baselines"].get("chen_sqrtn", {}).get("peak_batch1")
    row: dict[str, int | None] = {}
    for method, peak in peaks.items():
        once, twice = (
            None if peak is None else largest_batch(MEMORY, graph.resident_bytes, peak, times) for times in (1, 2)
        )
        row |= {method: once, f"{method}, parameters twice": twice}
    return row


def _sentence(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "No network was reached before the run was cancelled."
    batches = ", ".join(f"{row['network']} {row['batch']} ({_proof(row)})" for row in rows)
    vgg = next((row for row in rows if row["network"] == "VGG19"), None)
    words = f"Within 16 GB at one extra forward pass: {batches}."
    if vgg is None:
        return words
    return (
        f"{words} VGG19's published {vgg['everything kept, parameters twice']} (everything kept) and "
        f"{vgg['Chen, parameters twice']} (Chen √n) come from counting parameters twice; "
        f"{vgg['everything kept']} and {vgg['Chen']} is right."
    )


def _proof(row: dict[str, Any]) -> str:
    return "proven to be the largest" if row["proven"] else f"at most {row['upper bound']}"


def _draw(rows: list[dict[str, Any]]) -> Figure:
    return bars(rows, "network", COLUMNS, "largest batch", logarithmic=True)


ITEM = Item(
    key="checkmate-figure-6",
    paper="Checkmate",
    place="Figure 6",
    title="the largest batch at one extra forward pass",
    notebook="07_larger_inputs.ipynb",
    function="rx.max_batch",
    test="tests/papers/test_exact_items.py",
    published="U-Net 61, SegNet 62, VGG19 289, MobileNet 1105, ResNet-50 193; VGG19 167 with everything kept, "
    "197 by Chen's √n",
    remark="The baselines' published bars count parameters and their gradients twice; counted once they are 181 and "
    "213. SegNet's 62 cannot be attained: one operation alone needs more than 16 GB. Chen's peak at batch 1 is the "
    "published program's.",
    compute=figure_6,
)
