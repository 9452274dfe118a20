"""How each strategy looks in a figure: always the same shape and colour, whatever it is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.solvers import STRATEGIES

SHAPES = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "x",
    "star",
    "pentagon",
    "hexagon",
    "triangle-left",
    "triangle-right",
    "diamond-tall",
    "diamond-wide",
    "hourglass",
    "bowtie",
    "star-square",
    "star-diamond",
    "hexagram",
    "octagon",
    "star-triangle-up",
    "star-triangle-down",
)


@dataclass(frozen=True)
class Mark:
    """A marker: plotly's name of its shape, and its colour as ``#rrggbb``."""

    shape: str
    colour: str


def mark(strategy: str, theme: Theme = "light") -> Mark:
    """The marker of a strategy; the shape alone tells it from every other registered one.

    Args:
        strategy: a name in `remat_explorer.solvers.STRATEGIES`, or any other, which gets the shape after theirs.
        theme: ground of the figure.

    >>> mark("optimal").shape, mark("chen-greedy") == mark("chen-sqrt-n")
    ('circle', False)
    """
    names, hues = list(STRATEGIES), palette(theme).hues
    place = names.index(strategy) if strategy in names else len(names)
    return Mark(SHAPES[place % len(SHAPES)], hues[place % len(hues)])
