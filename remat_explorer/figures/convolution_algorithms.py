"""The implementations of a convolution: workspace against time, and which of them a schedule runs.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), appendix G and Figure 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remat_explorer.errors import GraphError
from remat_explorer.explanations import kinds_of_codes
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.implementation_images import implementation_colours
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.graph import Graph
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes, format_seconds
from remat_explorer.schedule import Schedule

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PARTS = {"_input_gradient": "input gradient", "_weight_gradient": "weight gradient"}


@dataclass(frozen=True)
class Algorithm:
    """One implementation: its name and kind, cost, workspace in bytes, and how often the schedule runs it."""

    name: str
    kind: str
    cost: float
    workspace: int
    runs: int


@dataclass(frozen=True)
class Part:
    """An operation of a layer with its implementations, the default one first."""

    title: str
    operation: int
    algorithms: tuple[Algorithm, ...]


def parts_of(schedule: Schedule, operation: int) -> tuple[Part, ...]:
    """The operations of the convolution that an operation belongs to, else the operation alone.

    Args:
        schedule: whose runs are counted.
        operation: the forward convolution or one of its gradients.

    >>> import numpy as np
    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> [(part.title, part.algorithms[0].runs) for part in parts_of(keep, 1)]
    [('v1', 1)]
    """
    graph = schedule.graph
    return tuple(_part(schedule, k) for k in _layer(graph, operation))


def is_convolution(graph: Graph, operation: int) -> bool:
    """Whether an operation is a convolution, or a gradient of one."""
    details = graph.operations[operation].details
    return details is not None and details.operator.startswith("conv")


def _layer(graph: Graph, operation: int) -> list[int]:
    details = graph.operations[operation].details
    if details is None or not details.module or not is_convolution(graph, operation):
        return [operation]
    of_layer = [
        k
        for k, node in enumerate(graph.operations)
        if node.details and node.details.module == details.module and is_convolution(graph, k) and not node.optional
    ]
    first = {}  # a module that is called twice has the operations of both calls: those of the selected one
    for k in sorted(of_layer, key=lambda k: (k != operation, abs(k - operation))):
        first.setdefault(_title(graph, k), k)
    return sorted(first.values())


def _title(graph: Graph, k: int) -> str:
    node = graph.operations[k]
    operator = node.details.operator if node.details else ""
    if not operator.startswith("conv"):
        return node.name
    titles = [title for ending, title in PARTS.items() if ending in operator]
    return titles[0] if titles else node.phase if node.phase == "forward" else "gradients"


def _part(schedule: Schedule, k: int) -> Part:
    node, kinds = schedule.graph.operations[k], kinds_of_codes(schedule.graph)[k]
    algorithms = tuple(
        Algorithm(way.name, kinds[code - 1], way.cost, way.workspace, int((schedule.R[:, k] == code).sum()))
        for code, way in enumerate(node.implementations, 1)
    )
    return Part(_title(schedule.graph, k), k, algorithms)


def describe_algorithm(algorithm: Algorithm) -> str:
    """What the hover says of an implementation.

    >>> describe_algorithm(Algorithm("native", "algorithms", 0.002, 1024, 1))
    'native: 2 ms, 1.00 KiB of workspace, runs once'
    """
    runs = {0: "does not run", 1: "runs once"}.get(algorithm.runs, f"runs {algorithm.runs} times")
    time = f"{format_seconds(algorithm.cost)}, {format_bytes(algorithm.workspace)} of workspace"
    return f"{algorithm.name}: {time}, {runs}"


def convolution_algorithms(schedule: Schedule, operation: int, theme: Theme = "light") -> Figure:
    """Workspace against time of each implementation of a convolution, forward and gradients; those that run are filled.

    Args:
        schedule: of a graph with choices; its costs are seconds.
        operation: the forward convolution or one of its gradients; of another operation its own implementations.
        theme: ground of the figure, "light" or "dark".

    Raises:
        GraphError: if there is no such operation.

    >>> import numpy as np
    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> figure = convolution_algorithms(keep, 1)
    >>> figure.data[0].hovertext, figure.data[0].marker.symbol
    (('default: 1.0 s, 0 B of workspace, runs once',), ('circle',))
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    graph = schedule.graph
    if not 0 <= operation < graph.n:
        raise GraphError(f"there is no operation {operation!r}; {graph.name!r} has those from 0 to {graph.n - 1}")
    parts, colours = parts_of(schedule, operation), palette(theme)
    axis = ByteAxis.up_to(max(1, *(one.workspace for part in parts for one in part.algorithms)))
    figure: Any = make_subplots(rows=1, cols=len(parts), subplot_titles=[part.title for part in parts])
    for column, part in enumerate(parts, 1):
        hues = implementation_colours((one.kind for one in part.algorithms), theme)
        marker = {
            "size": 11,
            "color": [hues[one.kind] for one in part.algorithms],
            "symbol": ["circle" if one.runs else "circle-open" for one in part.algorithms],
            "line": {"width": 2},
        }
        trace = go.Scatter(
            x=[one.workspace / axis.bytes for one in part.algorithms],
            y=[1000 * one.cost for one in part.algorithms],
            mode="markers+text",
            text=[in_figure(one.name) if one.runs else "" for one in part.algorithms],
            textposition="top center",
            hovertext=[in_figure(describe_algorithm(one)) for one in part.algorithms],
            hoverinfo="text",
            marker=marker,
            showlegend=False,
        )
        figure.add_trace(trace, 1, column)
    figure.update_xaxes(title_text=f"workspace ({axis.unit})", gridcolor=colours.grid, zeroline=False)
    figure.update_yaxes(title_text="time (ms)", gridcolor=colours.grid, zeroline=False, col=1)
    figure.update_layout(
        title=in_figure(graph.operations[operation].name),
        height=340,
        **colours.look,
    )
    return figure
