"""The networks of MONeT's evaluation, with all implementations of their operations, and what their items share.

Full sizes are the paper's: batches that fill about 15 GiB in PyTorch on a P100; a roofline of its published
rates gives the costs. Nothing of them is allocated. The small one is a residual network for
images of 32 pixels.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), section 5 and Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.capture_options import KINDS
from remat_explorer.graph import Graph
from reproduction.drawing import dressed
from reproduction.item import Outcome, Settings
from reproduction.layer_graphs import captured_graph

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


DEVICE = "P100-roofline"
NETWORKS: dict[Settings, dict[str, int]] = {  # by the zoo's name, with the batch
    "small": {"residual_net": 1024},
    "full": {"resnet50": 184, "googlenet": 320, "unet_monet": 11, "vgg16": 176, "mobilenet_v2": 272},
}
KINDS_OF_ROOFLINE = tuple(kind for kind in KINDS if kind != "algorithms")  # rates cannot tell one library from another
PUBLISHED = {  # memory at 10 % overhead relative to PyTorch's, from Table 1's 5.7 of 15.1, 6.9 of 14.9 and so on
    "resnet50": 0.377,
    "googlenet": 0.463,
    "unet_monet": 0.364,
    "vgg16": 0.39,
    "mobilenet_v2": 0.331,
}
ON_P100 = {name: name.removesuffix("_monet") for name in PUBLISHED}  # what was measured, by the zoo's name


def choice_graph(name: str, settings: Settings) -> Graph:
    """A network of the evaluation with every kind of implementation that a roofline can compare.

    Args:
        name: one of ``NETWORKS[settings]``.
        settings: which batch.
    """
    return captured_graph(name, DEVICE, NETWORKS[settings][name], implementations=KINDS_OF_ROOFLINE)


def lines(rows: Sequence[Mapping[str, Any]], by: str, x: str, y: str, x_title: str, y_title: str) -> Figure:
    """A line with markers for each value of a column.

    Args:
        rows: the data; those without a number for ``y`` leave a gap.
        by: the column that tells lines apart.
        x, y: columns of numbers.
        x_title, y_title: what they are, with units.

    >>> [trace.name for trace in lines([{"way": "a", "x": 1, "y": 2}], "way", "x", "y", "x", "y").data]
    ['a']
    """
    from plotly import graph_objects as go

    from remat_explorer.figures.palette import palette

    hues = palette("light").hues
    figure = go.Figure()
    for i, name in enumerate(dict.fromkeys(row[by] for row in rows)):
        mine = sorted((row for row in rows if row[by] == name), key=lambda row: row[x])
        look = {"color": hues[i % len(hues)]}
        points = {"x": [row[x] for row in mine], "y": [row.get(y) for row in mine]}
        figure.add_scatter(**points, name=str(name), mode="lines+markers", line=look, marker={"size": 8, **look})
    figure.update_xaxes(title_text=x_title)
    figure.update_yaxes(title_text=y_title)
    return dressed(figure)


def panels(rows: Sequence[Mapping[str, Any]], networks: Sequence[str], **drawn: str) -> Figure:
    """`lines` for each network, side by side.

    Args:
        rows: with a column "network".
        networks: in the order of the panels.
        drawn: the other arguments of `lines`.
    """
    from reproduction.drawing import side_by_side

    figures = [lines([row for row in rows if row["network"] == name], **drawn) for name in networks]
    return side_by_side(figures, list(networks))


def by_network(rows: Sequence[Mapping[str, Any]], sentence: Callable[[str, Sequence[Mapping[str, Any]]], str]) -> str:
    """A sentence for each network.

    Args:
        rows: with a column "network".
        sentence: the result of one network, from its name and rows.
    """
    networks = dict.fromkeys(row["network"] for row in rows)
    return " ".join(sentence(name, [row for row in rows if row["network"] == name]) for name in networks)


def overhead_curves(
    rows: list[dict[str, Any]], by: str, words: Callable[[Sequence[Mapping[str, Any]]], str], complete: bool
) -> Outcome:
    """The outcome of rows of overheads, one for each network, kind of curve and budget; adds columns in per cent.

    Args:
        rows: with columns "network", ``by``, "share" (of plain execution's memory) and "overhead" (a ratio, or None).
        by: the column that tells curves apart.
        words: the result of the rows.
        complete: whether nothing is missing.
    """
    for row in rows:
        row["overhead in %"] = None if row["overhead"] is None else 100 * (row["overhead"] - 1)
        row["memory in %"] = 100 * row["share"]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    look = {"by": by, "x": "memory in %", "y": "overhead in %"}
    titles = {"x_title": "memory (% of plain execution)", "y_title": "overhead (%)"}
    return Outcome(words(rows), tuple(rows), lambda: panels(rows, networks, **look, **titles), complete)
