"""MONeT's Figure 7: workspace against time of the ways to compute one convolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import checkpoint_all, solve

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CHANNELS: dict[Settings, tuple[int, int]] = {"small": (8, 16), "full": (128, 256)}  # in and out
SIDE, BATCH = {"small": 16, "full": 56}, {"small": 4, "full": 16}
KINDS = ("input-gradients", "chunks", "algorithms")  # of convolutions
SECONDS = {"small": 3.0, "full": 60.0}
BUDGET = "95%"
LAYER = "2"  # the second convolution: the first has no input gradient


def figure_7(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Every implementation of a convolution with 3 x 3 kernels, measured on this machine."""
    graph = profiled_convolution(settings, progress)
    hear = heard(progress, "convolution")
    solution = solve(graph, BUDGET, "monet", SECONDS[settings], on_progress=hear, cancelled=cancelled)
    schedule = solution.schedule or checkpoint_all(graph)
    operation = convolution_of(graph, LAYER)
    rows = rows_of(schedule, operation)
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(schedule, operation))


def profiled_convolution(settings: Settings, progress: Tell, device: str = "auto") -> Graph:
    """The graph of two convolutions with every implementation measured, on CUDA where there is one.

    Args:
        settings: which size.
        progress: is told how many are measured.
        device: "auto", "cpu" or "cuda".
    """
    import torch
    from torch import nn

    from remat_explorer.capture import capture, profile
    from remat_explorer.capture.step.placement import torch_device

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
    from remat_explorer.figures.convolution_algorithms import is_convolution

    return next(
        k
        for k, node in enumerate(graph.operations)
        if not graph.is_backward[k] and is_convolution(graph, k) and node.details and node.details.module == module
    )


def rows_of(schedule: Schedule, operation: int) -> list[dict[str, Any]]:
    """One row for each implementation of the convolution and its gradients, with how often the schedule runs it."""
    from remat_explorer.figures.convolution_algorithms import parts_of

    return [
        {"part": part.title, "implementation": one.name, "kind": one.kind, "seconds": one.cost}
        | {"workspace": one.workspace, "runs": one.runs}
        for part in parts_of(schedule, operation)
        for one in part.algorithms
    ]


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The range of times and workspaces; see `Item.words`."""
    (before, after), side = CHANNELS[settings], SIDE[settings]
    size = f"{before} to {after} channels at {side} x {side} pixels, batch {BATCH[settings]}"
    times, workspaces = [row["seconds"] for row in rows], [row["workspace"] for row in rows]
    parts = len({row["part"] for row in rows})
    return (
        f"A convolution from {size}, has {len(rows)} implementations of its {parts} operations, measured on this "
        f"machine: {format_seconds(min(times))} to {format_seconds(max(times))}, with "
        f"{format_bytes(min(workspaces))} to {format_bytes(max(workspaces))} of workspace."
    )


def _draw(schedule: Schedule, operation: int) -> Figure:
    from remat_explorer.figures import convolution_algorithms

    return convolution_algorithms(schedule, operation)


ITEM = Item(
    key="monet-figure-7",
    paper="MONeT",
    place="Figure 7",
    title="workspace against time of a convolution's implementations",
    notebook="08_operator_implementations.ipynb",
    function="remat_explorer.figures.convolution_algorithms",
    test="tests/papers/test_items.py",
    published="seven algorithms of a convolution from 64 to 64 channels at 56 x 56 pixels, batch 256 (Figure 7); "
    "memory is not always inversely proportional to time (appendix G)",
    remark="Another convolution, with its gradients, which the paper's figure does not have. Without a GPU the "
    "implementations are those of PyTorch on the CPU: by other libraries, channels last, and in chunks of the batch.",
    compute=figure_7,
    words=words,
)
