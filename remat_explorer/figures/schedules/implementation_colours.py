"""A colour for each kind of implementation, the same everywhere, that colour-blind people can tell apart.

Source: the hues of Okabe and Ito, "Color Universal Design" (2008), without their oranges, which are for recomputation,
and hues of Paul Tol. There are more kinds than hues: kinds that no model has together, or that do nearly the same,
share a hue and differ in lightness.
"""

from __future__ import annotations

from collections.abc import Iterable

from remat_explorer.figures.palette import Theme

LIGHT = {
    "": "#B5B5B5",
    "masks": "#882255",
    "activations": "#8A5F00",
    "replay": "#7A4B2A",
    "pooling": "#009E73",
    "attention": "#005E45",
    "statistics": "#56B4E9",
    "input-gradients": "#0072B2",
    "lean": "#EFB7C8",
    "output-activated": "#332288",
    "cross-entropy": "#5D3A9B",
    "chunks": "#CC79A7",
    "algorithms": "#D9C700",
}
DARK = LIGHT | {
    "": "#6B6F76",
    "activations": "#A87B1E",
    "replay": "#9C6B45",
    "pooling": "#00B386",
    "attention": "#00805F",
    "input-gradients": "#2A8FD0",
    "output-activated": "#7F7FD5",
    "masks": "#C2487F",
    "lean": "#F5CEDA",
    "cross-entropy": "#A68CE8",
    "chunks": "#E59CC5",
    "algorithms": "#F0E442",
}
OTHERS = ("#999933", "#44AA99", "#AA4499", "#117733")  # for kinds that a graph names by itself


def implementation_colours(kinds: Iterable[str], theme: Theme = "light") -> dict[str, str]:
    """A colour as ``#rrggbb`` for each kind; "" is the default implementation.

    >>> implementation_colours(["", "masks", "by hand"])
    {'': '#B5B5B5', 'masks': '#882255', 'by hand': '#999933'}
    """
    fixed, colours, unknown = LIGHT if theme == "light" else DARK, {}, 0
    for kind in kinds:
        if kind in fixed:
            colours[kind] = fixed[kind]
        else:
            colours[kind] = OTHERS[unknown % len(OTHERS)]
            unknown += 1
    return colours
