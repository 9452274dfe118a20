"""One palette for every figure: colours that colour-blind people can tell apart, on light and on dark ground.

Source: Okabe and Ito, "Color Universal Design" (2008), and Paul Tol's wine, sand and purple where those run out. Orange
is recomputation, and nothing else is orange; what travels to the host is indigo. A comparison sets ink against a
purple, which differ in lightness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Theme = Literal["light", "dark"]


@dataclass(frozen=True)
class Palette:
    """Colours as ``#rrggbb``, by what they mean.

    Attributes:
        forward, backward: first computation of an operation in either pass.
        recompute: a computation that repeats an earlier one.
        sent: a value that travels to the host and back, and its copies.
        kept: a value held across the end of a stage (a checkpoint).
        resident, temporaries, gradients: the other parts of the memory timeline.
        predicted, measured, budget: the lines over it.
        over: memory above the budget; up to the budget it is outlined, for a full budget is a good one.
        compared: another plan's memory; others: values without a colour of their own.
        cursor: the selected value; the selected stage is in ink.
        found: marks of what a search has found.
        only_first, only_second, both: cells of two schedules that are compared.
        empty, ground, ink, grid: an empty cell, the figure's background, its text and its lines.
        scale: memory from lowest to highest, a sequence of one hue and rising contrast.
        hues: colours for things that have no other meaning, such as strategies, in the order of their use.
    """

    forward: str
    backward: str
    recompute: str
    sent: str
    kept: str
    resident: str
    temporaries: str
    gradients: str
    predicted: str
    measured: str
    budget: str
    over: str
    compared: str
    others: str
    cursor: str
    found: str
    only_first: str
    only_second: str
    both: str
    empty: str
    ground: str
    ink: str
    grid: str
    scale: tuple[str, ...]
    hues: tuple[str, ...]

    @property
    def look(self) -> dict[str, Any]:
        """Background and text of a figure, as `update_layout` of plotly takes them.

        >>> LIGHT.look
        {'paper_bgcolor': '#FFFFFF', 'plot_bgcolor': '#F3F4F6', 'font_color': '#333333'}
        """
        return {"paper_bgcolor": self.ground, "plot_bgcolor": self.empty, "font_color": self.ink}

    @property
    def hover(self) -> dict[str, str]:
        """The ``hoverlabel`` of a figure, as `update_layout` takes it."""
        return {"bgcolor": self.ground, "font_color": self.ink}


LIGHT = Palette(
    forward="#56B4E9",
    backward="#009E73",
    recompute="#D55E00",
    sent="#4B22E0",
    kept="#0072B2",
    resident="#B5B5B5",
    temporaries="#56B4E9",
    gradients="#009E73",
    predicted="#222222",
    measured="#882255",
    budget="#7A7A7A",
    over="#CC1133",
    compared="#9C4DCC",
    others="#DADDE1",
    cursor="#CC79A7",
    found="#F0E442",
    only_first="#222222",
    only_second="#9C4DCC",
    both="#C4C8CD",
    empty="#F3F4F6",
    ground="#FFFFFF",
    ink="#333333",
    grid="#E3E5E8",
    scale=("#EAF2F8", "#A9CCE3", "#5499C7", "#1F618D", "#0B2F4A"),
    hues=("#0072B2", "#882255", "#009E73", "#CC79A7", "#5D3A9B", "#56B4E9", "#A89800"),
)
DARK = Palette(
    forward="#56B4E9",
    backward="#00B386",
    recompute="#F0792B",
    sent="#7D63FF",
    kept="#2A8FD0",
    resident="#6B6F76",
    temporaries="#56B4E9",
    gradients="#00B386",
    predicted="#F2F2F2",
    measured="#DDCC77",
    budget="#C4C7CC",
    over="#FF5577",
    compared="#C9A0F0",
    others="#4A4E55",
    cursor="#E59CC5",
    found="#F0E442",
    only_first="#F2F2F2",
    only_second="#B58CF0",
    both="#5B6067",
    empty="#24272B",
    ground="#111111",
    ink="#D8DADD",
    grid="#3A3E44",
    scale=("#1E2A36", "#1F4E79", "#2E86C1", "#85C1E9", "#EAF4FB"),
    hues=("#2A8FD0", "#C2487F", "#00B386", "#E59CC5", "#A68CE8", "#56B4E9", "#F0E442"),
)


def palette(theme: Theme) -> Palette:
    """The palette of a theme.

    >>> palette("dark").ground
    '#111111'
    """
    return {"light": LIGHT, "dark": DARK}[theme]
