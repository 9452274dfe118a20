"""What costs and sizes are multiples of, which lets bounds be rounded.

Where all costs are integers, so is the cost of every schedule. And where memory is short of one more large tensor, a
fractional point fills the room with a part of it. Counting in whole tensors forbids that: from sum w_j e_j <= h with
e_j 0 or 1 follows sum floor(w_j / d) e_j <= floor(h / d).
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.solvers.bounds.row_settings import ROWS, DivisorSettings
from remat_explorer.solvers.condensed import Condensed


def divisors(condensed: Condensed, budget: int, settings: DivisorSettings = ROWS.divisors) -> list[int]:
    """Up to four sizes in bytes, largest first, that at least three groups have, to a thousandth.

    >>> from remat_explorer.instances import linear
    >>> divisors(Condensed.of(linear(8)), 100)
    [1]
    """
    sizes = np.sort(condensed.bytes[condensed.bytes > settings.smallest * budget])[::-1]
    common: list[int] = []
    while len(sizes) and len(common) < settings.most:
        alike = sizes >= sizes[0] * (1 - settings.alike)
        if alike.sum() >= settings.times:
            common.append(int(sizes[alike].min()))
        sizes = sizes[~alike]
    return common


def cost_step(graph: Graph) -> float:
    """A number that every schedule's cost is a multiple of: the costs' common divisor, or 0 if they are no integers.

    >>> from remat_explorer.instances import linear
    >>> cost_step(linear(8))
    1.0
    """
    costs = [way.cost for node in graph.operations for way in node.implementations]
    if graph.total_cost >= 2**52 or any(cost != int(cost) for cost in costs):
        return 0.0
    return float(math.gcd(*(int(cost) for cost in costs)))
