"""MONeT's Figure 7: workspace against time of the ways to compute one convolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all
from reproduction.drawing import dressed, side_by_side
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell
from reproduction.p100 import NETWORKS, p100_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


CHANNELS: dict[Settings, tuple[int, int]] = {"small": (8, 16), "full": (64, 64)}  # in and out
SIDE, BATCH = {"small": 16, "full": 56}, {"small": 4, "full": 256}
KINDS = ("input-gradients", "chunks", "algorithms")  # of convolutions
LAYER = "2"  # the second convolution: the first has no input gradient
P100, HERE = "on a P100, by the authors", "on this machine"
NETWORK, PLACE = "resnet50", 2  # whose third convolution has the published kernel, channels and pixels
PARTS = {  # of a published convolution by the end of its operations' names
    "convolution": "forward",
    "convolution_param_grad": "weight gradient",
    "convolution_ip_grad": "input gradient",
}
MIB = 2**20


def figure_7(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The published algorithms, and every implementation of a 3 x 3 convolution measured on this machine."""
    rows = published_rows()
    if not cancelled():
        graph = profiled_convolution(settings, progress)
        (before, after), side = CHANNELS[settings], SIDE[settings]
        size = f"{before} to {after} channels at {side} x {side} pixels, batch {BATCH[settings]}"
        measured = rows_of(checkpoint_all(graph), convolution_of(graph, LAYER))
        rows += [{"source": HERE, "convolution": size} | row for row in measured]
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), complete=not cancelled())


def published_rows() -> list[dict[str, Any]]:
    """The algorithms of cuDNN that ran for the convolution of ResNet-50 with the kernel of the paper's.

    >>> rows = published_rows()
    >>> [sum(row["part"] == part for row in rows) for part in PARTS.values()]
    [7, 5, 6]
    """
    graph = p100_graph(NETWORK, "icmn")
    size = f"64 to 64 channels at 56 x 56 pixels, batch {NETWORKS[NETWORK]}"
    rows: list[dict[str, Any]] = []
    for ending, part in PARTS.items():
        same = [k for k, one in enumerate(graph.operations) if one.name.split()[-1] == ending]
        k = same[PLACE if part == "forward" else -1 - PLACE]  # the backward pass runs the other way
        rows += [
            {"source": P100, "convolution": size, "part": part, "implementation": one.name, "seconds": one.cost}
            | {"workspace": one.workspace}
            for one in graph.operations[k].implementations
        ]
    return rows


def profiled_convolution(settings: Settings, progress: Tell, device: str = "auto") -> Graph:
    """The graph of two convolutions with every implementation measured, on CUDA where there is one.

    Args:
        settings: which size.
        progress: is told how many are measured.
        device: "auto", "cpu" or "cuda".
    """
    import torch
    from torch import nn

    from remat_explorer.capture import capture, profile, torch_device

    target, (before, after), side = torch_device(device), CHANNELS[settings], SIDE[settings]
    first, second = nn.Conv2d(before, before, 3, padding=1), nn.Conv2d(before, after, 3, padding=1)
    module = nn.Sequential(first, nn.ReLU(), second, nn.ReLU()).to(target)
    args = (torch.randn(BATCH[settings], before, side, side, device=target),)

    def loss(output: torch.Tensor) -> torch.Tensor:
        return output.mean()

    def tell(done: int, total: int) -> None:
        progress(f"measuring {done} of {total} implementations")

    graph = capture(module, args, loss=loss, implementations=KINDS)
    return profile(graph, module, args, loss=loss, device=str(target), on_progress=tell)


def convolution_of(graph: Graph, module: str) -> int:
    """The number of the forward convolution of a module.

    Args:
        graph: a captured graph.
        module: its path.
    """
    from remat_explorer.figures import is_convolution

    return next(
        k
        for k, node in enumerate(graph.operations)
        if not graph.is_backward[k] and is_convolution(graph, k) and node.details and node.details.module == module
    )


def rows_of(schedule: Schedule, operation: int) -> list[dict[str, Any]]:
    """One row for each implementation of the convolution and its gradients, with how often the schedule runs it.

    Args:
        schedule: of a graph whose implementations were measured.
        operation: the forward convolution.
    """
    from remat_explorer.figures import parts_of

    return [
        {"part": part.title, "implementation": one.name, "kind": one.kind, "seconds": one.cost}
        | {"workspace": one.workspace, "runs": one.runs}
        for part in parts_of(schedule, operation)
        for one in part.algorithms
    ]


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The range of times and workspaces of each source; see `Item.words`."""
    told = []
    for source in dict.fromkeys(row["source"] for row in rows):
        mine = [row for row in rows if row["source"] == source]
        parts = list(dict.fromkeys(row["part"] for row in mine))
        counts = ", ".join(f"{sum(row['part'] == part for row in mine)} {part}" for part in parts)
        forward = [row for row in mine if row["part"] == parts[0]]
        fastest = min(forward, key=lambda row: row["seconds"])
        smallest = min(forward, key=lambda row: (row["workspace"], row["seconds"]))
        largest = max(forward, key=lambda row: row["workspace"])
        told.append(
            f"{mine[0]['convolution']}, measured {source}: {counts}; forward the fastest takes {_point(fastest)}, the "
            f"smallest {_point(smallest)}, the largest {_point(largest)}."
        )
    return " ".join(told)


def _point(row: Mapping[str, Any]) -> str:
    return f"{format_seconds(row['seconds'])} with {format_bytes(row['workspace'])} of workspace"


def _draw(rows: Sequence[Mapping[str, Any]]) -> Figure:
    from plotly import graph_objects as go

    from remat_explorer.figures.palette import palette

    hues = palette("light").hues
    figures, titles = [], []
    for source in dict.fromkeys(row["source"] for row in rows):
        figure = go.Figure()
        mine = [row for row in rows if row["source"] == source]
        for i, part in enumerate(dict.fromkeys(row["part"] for row in mine)):
            points = [row for row in mine if row["part"] == part]
            figure.add_scatter(
                x=[1000 * row["seconds"] for row in points],
                y=[row["workspace"] / MIB for row in points],
                text=[row["implementation"] for row in points],
                mode="markers",
                name=part,
                marker={"size": 10, "color": hues[i % len(hues)]},
                hovertemplate="%{text}: %{x:.4g} ms, %{y:.4g} MiB<extra></extra>",
            )
        figure.update_xaxes(title_text="time (ms)").update_yaxes(title_text="workspace (MiB)")
        figures.append(dressed(figure))
        titles.append(f"{mine[0]['convolution'].replace(' at ', '<br>at ')}<br>{source}")
    return side_by_side(figures, titles).update_layout(margin={"t": 90})


FIGURE_7 = Item(
    key="monet-figure-7",
    paper="MONeT",
    place="Figure 7",
    title="workspace against time of a convolution's implementations",
    notebook="08_operator_implementations.ipynb",
    function="remat_explorer.figures.convolution_algorithms",
    test="tests/reproduction/test_items.py",
    published="seven algorithms of a convolution from 64 to 64 channels at 56 x 56 pixels, batch 256 (Figure 7); "
    "memory is not always inversely proportional to time (appendix G)",
    remark="The authors' times of a P100 are those of this convolution in ResNet-50 at batch 184, with its two "
    "gradients, which the paper's figure does not have. Of the eight forward algorithms seven ran. Without a GPU the "
    "implementations measured here are those of PyTorch on the CPU: by other libraries, channels last, and in chunks "
    "of the batch.",
    compute=figure_7,
    words=words,
)
