"""The part of the plane that the trade-off figure shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.tradeoff import overheads
from remat_explorer.solvers import Frontier

LEAST = 2.0  # % of overhead that there is always room for
NEARLY = 1.25  # so far beyond it is drawn all the same where that shows every point
MANY = 4  # points from which on one alone, the dearest, does not say where the axis ends
BELOW = 0.25  # of the axis above 0 that there may be below it, for what was measured


class PlacedPoint(Protocol):
    """Something with a place in the figure: a solution, or what was measured of one."""

    @property
    def peak(self) -> int | None:
        """Bytes, resident bytes included; None where there is no schedule."""
        ...

    @property
    def overhead(self) -> float | None:
        """Cost or time as a ratio to computing everything once; None where it is not known."""
        ...


@dataclass(frozen=True)
class Extent:
    """Ranges of both axes.

    Attributes:
        axis: the unit of memory.
        left, right: bytes.
        bottom, top: overhead in %; what lies beyond is drawn at the edge.
    """

    axis: ByteAxis
    left: float
    right: float
    bottom: float
    top: float

    def place(self, placed: PlacedPoint | None) -> tuple[list[float], list[float]]:
        """Where something is drawn, as coordinates of no point or one.

        >>> Extent.around(None).place(None)
        ([], [])
        """
        if placed is None or placed.peak is None or placed.overhead is None:
            return [], []
        overhead = max(self.bottom, min(100 * (placed.overhead - 1), self.top))
        return [placed.peak / self.axis.bytes], [overhead]

    def edge(self, placed: PlacedPoint | None) -> str:
        """The edge at which something is drawn that lies beyond it: "upper", "lower", or "" where it is inside."""
        if placed is None or placed.overhead is None:
            return ""
        overhead = 100 * (placed.overhead - 1)
        return "upper" if overhead > self.top else "lower" if overhead < self.bottom else ""

    @staticmethod
    def around(
        frontier: Frontier | None, budget: int | None = None, *others: PlacedPoint | None, best_only: bool = False
    ) -> Extent:
        """Room for every point, the budget and others, with a margin.

        Some methods cost many times as much as the best and would press all others onto the axis; so the top is at
        most three times the dearest point that no other beats, and where there are many of these, that of the second
        dearest; a little more if that shows every point. A measured time may be anything: it makes little room below 0.

        Args:
            frontier: the curve, or None.
            budget: bytes, or None.
            others: what else is drawn.
            best_only: only points that no other beats are drawn.

        >>> Extent.around(None, 100).top
        2.0
        """
        best = frontier.nondominated() if frontier else ()
        points = best if best_only else frontier.points if frontier else ()
        memory = [float(point.peak or 0) for point in points]
        memory += [float(s.budget) for s in (frontier.solutions if frontier else ())]
        memory += [float(budget)] if budget else []
        memory += [float(placed.peak) for placed in others if placed is not None and placed.peak]
        percentages = [100 * (placed.overhead - 1) for placed in others if placed is not None and placed.overhead]
        every = overheads(points)
        top = 0.0
        if frontier is not None and len(every):
            dearest = np.sort(overheads(best))[-2 if len(best) >= MANY else -1]
            most = max(3 * dearest, LEAST)
            top = float(every.max() if every.max() <= NEARLY * most else most)
        elif percentages:
            top = max(percentages)
        left, right = (min(memory), max(memory)) if memory else (0.0, 1.0)
        margin = 0.05 * (right - left) or 0.05 * right
        top = max(top, LEAST)
        lowest = min([0.0, *every])
        bottom = min([lowest, *(max(overhead, lowest - BELOW * top) for overhead in percentages)]) - 0.06 * top
        return Extent(ByteAxis.up_to(right), left - margin, right + margin, float(bottom), top)

    def ranges(self) -> tuple[list[float], list[float]]:
        """Ranges of the memory axis, in its unit, and of the overhead axis, which shows a little more than the top."""
        x = [float(np.round(edge / self.axis.bytes, 6)) for edge in (self.left, self.right)]
        return x, [self.bottom, 1.08 * self.top]
