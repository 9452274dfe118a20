"""Outlines of the figures' markers, for legends in HTML: glyphs of that many shapes are in no common font."""

from __future__ import annotations

import math
from collections.abc import Sequence

RADIUS = 5.0  # of a marker whose place is the origin
Points = list[tuple[float, float]]

# Corners of a regular polygon, or of a star: how many outer ones, share of the radius at which the inner ones lie
# (None for a polygon), and by how many degrees it is turned from having a corner on top.
REGULAR: dict[str, tuple[int, float | None, float]] = {
    "circle": (24, None, 0),
    "square": (4, None, 45),
    "diamond": (4, None, 0),
    "triangle-up": (3, None, 0),
    "triangle-down": (3, None, 180),
    "triangle-left": (3, None, -90),
    "triangle-right": (3, None, 90),
    "star": (5, 0.4, 0),
    "pentagon": (5, None, 0),
    "hexagon": (6, None, 30),
    "octagon": (8, None, 22.5),
    "star-square": (4, 0.5, 45),
    "star-diamond": (4, 0.5, 0),
    "hexagram": (6, 0.58, 0),
    "star-triangle-up": (3, 0.3, 0),
    "star-triangle-down": (3, 0.3, 180),
    "hexagon2": (6, None, 0),
}
ARM = 0.35  # half of the width of a cross's arm, as a share of the radius
LEGS = ((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8))  # corners of a square, of which a triangle has three
CROSS = ((-ARM, -1), (ARM, -1), (ARM, -ARM), (1, -ARM), (1, ARM), (ARM, ARM))
OTHERS: dict[str, Sequence[tuple[float, float]]] = {
    "diamond-tall": ((0, -1), (0.6, 0), (0, 1), (-0.6, 0)),
    "diamond-wide": ((0, -0.6), (1, 0), (0, 0.6), (-1, 0)),
    "hourglass": ((-0.8, -0.8), (0.8, -0.8), (-0.8, 0.8), (0.8, 0.8)),
    "bowtie": ((-0.8, -0.8), (0.8, 0.8), (0.8, -0.8), (-0.8, 0.8)),
    "cross": (*CROSS, *((-x, -y) for x, y in CROSS)),
    "triangle-nw": (LEGS[0], LEGS[1], LEGS[3]),
    "triangle-ne": LEGS[:3],
    "triangle-se": LEGS[1:],
    "triangle-sw": (LEGS[0], LEGS[2], LEGS[3]),
    "arrow-up": ((0, -1), (0.5, 1), (-0.5, 1)),
    "arrow-down": ((0, 1), (0.5, -1), (-0.5, -1)),
    "arrow-left": ((-1, 0), (1, 0.5), (1, -0.5)),
    "arrow-right": ((1, 0), (-1, 0.5), (-1, -0.5)),
    "arrow": ((0, -1), (0.5, 1), (0, 0.6), (-0.5, 1)),
    "arrow-wide": ((0, -1), (0.9, 1), (0, 0.6), (-0.9, 1)),
    "square-x": tuple(
        point
        for x, y in ((0, -1), (1, 0), (0, 1), (-1, 0))  # four triangles, whose sides leave an x
        for point in ((0, 0), (x or -0.7, y or -0.7), (x or 0.7, y or 0.7))
    ),
}


def outline(shape: str) -> Points:
    """Corners of the marker that plotly calls ``shape``, y downwards.

    >>> [(round(x), round(y)) for x, y in outline("diamond")]
    [(0, -5), (5, 0), (0, 5), (-5, 0)]
    """
    if shape == "x":
        return [_turned(x, y, 45) for x, y in outline("cross")]
    if shape in OTHERS:
        return [(RADIUS * x, RADIUS * y) for x, y in OTHERS[shape]]
    corners, inner, turn = REGULAR[shape]
    radii = [RADIUS] if inner is None else [RADIUS, RADIUS * inner]
    total = corners * len(radii)
    return [_turned(0.0, -radii[i % len(radii)], turn + 360 * i / total) for i in range(total)]


def _turned(x: float, y: float, degrees: float) -> tuple[float, float]:
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return x * cosine - y * sine, x * sine + y * cosine
