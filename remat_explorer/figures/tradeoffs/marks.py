"""How each strategy looks in a figure: always the same shape and colour, whatever it is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.strategies.registry import method_of

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
    "hexagon2",
    "triangle-ne",
    "triangle-se",
    "triangle-sw",
    "triangle-nw",
    "arrow-up",
    "arrow-down",
    "arrow-left",
    "arrow-right",
    "arrow",
    "arrow-wide",
    "square-x",
)

COLOURS_OF_THEIR_OWN = {"checkpoint-all": "predicted"}  # by their names in the palette


@dataclass(frozen=True)
class Mark:
    """A marker: plotly's name of its shape, and its colour as ``#rrggbb``."""

    shape: str
    colour: str


def mark(strategy: str, theme: Theme = "light") -> Mark:
    """The marker of a strategy; the shape alone tells it from every other registered one. Keeping everything is black.

    Args:
        strategy: a name in `remat_explorer.solvers.STRATEGIES`, or any other, which gets one that they leave.
        theme: ground of the figure.

    >>> mark("optimal").shape, mark("chen-greedy") == mark("chen-sqrt-n")
    ('circle', False)
    """
    if strategy in COLOURS_OF_THEIR_OWN:
        return Mark(_shape(strategy), getattr(palette(theme), COLOURS_OF_THEIR_OWN[strategy]))
    names, hues = list(STRATEGIES), palette(theme).hues
    place = names.index(strategy) if strategy in names else len(names)
    return Mark(_shape(strategy), hues[place % len(hues)])


def _shape(strategy: str) -> str:
    """The symbol of a strategy, or one of those that no other has."""
    symbols = {name: method.symbol if (method := method_of(name)) else "" for name in STRATEGIES}
    spare = [shape for shape in SHAPES if shape not in symbols.values()]
    without = [name for name, symbol in symbols.items() if not symbol]
    place = without.index(strategy) if strategy in without else len(without)
    return symbols.get(strategy) or spare[place % len(spare)]
