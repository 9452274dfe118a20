"""Play, Pause and a slider for a figure of plotly's that has frames; they need no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remat_explorer.figures.palette import Palette


def player(names: Sequence[str], prefix: str, milliseconds: int, above: float, colours: Palette) -> dict[str, Any]:
    """The parts of a layout.

    Args:
        names: of the frames, which the slider shows in this order.
        prefix: what the slider says before a name.
        milliseconds: how long a frame stays while it plays.
        above: where the buttons are, in heights of the plots.
        colours: of text and grounds.

    >>> from remat_explorer.figures.palette import palette
    >>> layout = player(["0", "1"], "statement ", 600, 1.5, palette("light"))
    >>> [button["label"] for button in layout["updatemenus"][0]["buttons"]], len(layout["sliders"][0]["steps"])
    (['Play', 'Pause'], 2)
    """
    jump = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
    play = {"frame": {"duration": milliseconds, "redraw": True}, "fromcurrent": True, "transition": {"duration": 0}}
    steps = [{"method": "animate", "label": name, "args": [[name], jump]} for name in names]
    buttons = [
        {"method": "animate", "label": "Play", "args": [None, play]},
        {"method": "animate", "label": "Pause", "args": [[None], jump]},
    ]
    look = {"bgcolor": colours.empty, "bordercolor": colours.grid, "font": {"color": colours.ink}}
    place = {"type": "buttons", "direction": "left", "x": 0, "xanchor": "left", "y": above, "showactive": False}
    slider = {"currentvalue": {"prefix": prefix}, "activebgcolor": colours.grid, "tickcolor": colours.ink}
    return {"sliders": [{"steps": steps, **slider, **look}], "updatemenus": [{"buttons": buttons, **place, **look}]}
