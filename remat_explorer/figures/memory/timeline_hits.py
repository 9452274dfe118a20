"""Where the memory timeline can be pointed at: a place in every layer of every computation, and what is said there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.figures.memory.memory_stack import LAYERS, Stack
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes

MOST = 250  # groups of computations that can be told apart by pointing
SPACING = 0.12  # of the height; plotly hears a click up to 20 pixels away from a place


@dataclass(frozen=True)
class Hits:
    """Places of a timeline, one entry each.

    Attributes:
        x: position on the axis of computations.
        y: bytes.
        computation: which computation is meant.
        layer: index of the layer, or -1 above all of them.
    """

    x: np.ndarray
    y: np.ndarray
    computation: np.ndarray
    layer: np.ndarray

    def stage(self, stack: Stack, place: int) -> int:
        """The stage that a place belongs to.

        Args:
            stack: what `hits` was given.
            place: index of the place.

        >>> from remat_explorer.figures.memory.memory_stack import stack
        >>> from remat_explorer.instances import linear
        >>> from remat_explorer.plan import Plan
        >>> layers = stack(Plan.from_sequence(linear(1), [(0, 0, 1), (1, 1, 1), (2, 2, 1)]))
        >>> places = hits(layers, 3)
        >>> [places.stage(layers, i) for i in np.flatnonzero(places.computation == 1)[:2]]
        [1, 1]
        """
        return int(stack.stage[self.computation[place]])


def hits(stack: Stack, top: float) -> Hits:
    """Places in every layer and above, so close together that one of them is near wherever one points.

    Args:
        stack: the layers.
        top: bytes at the upper end of the axis.
    """
    edges, chosen = stack.places(MOST)
    layers = stack.bytes[:, chosen]
    above = np.maximum(top - layers.sum(axis=0), 0)
    heights = np.vstack([layers, above]).astype(np.float64)
    floors = np.cumsum(heights, axis=0) - heights
    layer, column = np.nonzero(heights > 0)
    height, floor = heights[layer, column], floors[layer, column]
    count = np.ceil(height / (SPACING * max(top, 1.0))).astype(np.int64)
    cell = np.repeat(np.arange(len(count)), count)
    step = np.arange(len(cell)) - np.repeat(np.cumsum(count) - count, count)
    y = floor[cell] + (step + 0.5) * height[cell] / count[cell]
    middle = (edges[:-1] + edges[1:]) / 2
    layer_of = np.where(layer == len(layers), -1, layer)
    return Hits(middle[column[cell]], y, chosen[column[cell]], layer_of[cell])


def describe(stack: Stack, places: Hits, measured: np.ndarray | None = None) -> list[str]:
    """What the hover says at each place, as HTML of a few lines.

    Args:
        stack: what `hits` was given.
        places: what it returned.
        measured: bytes for each computation, or None.
    """
    plan, total = stack.plan, stack.total
    columns: dict[int, str] = {}
    for i in np.unique(places.computation).tolist():
        statement = stack.computations[i]
        text = in_figure(plan.text(statement)).replace(" in place of ", "<br>in place of ")
        lines = f"stage {statement.stage}: {text}<br>predicted {format_bytes(int(total[i]))}"
        columns[i] = lines if measured is None else f"{lines}, measured {format_bytes(int(measured[i]))}"
    texts: dict[tuple[int, int], str] = {}
    said = []
    for i, layer in zip(places.computation.tolist(), places.layer.tolist(), strict=True):
        text = texts.get((i, layer))
        if text is None:
            text = columns[i]
            if layer >= 0:
                text += f"<br><b>{LAYERS[layer]}</b> {format_bytes(int(stack.bytes[layer, i]))}"
            texts[i, layer] = text
        said.append(text)
    return said
