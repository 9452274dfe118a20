"""Which split points become checkpoints: about every sqrt(n)-th, or greedily by bytes.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174), section 4 and Algorithm 3.
"""

from __future__ import annotations

import math

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.solvers.heuristics.chain import forward_operations
from remat_explorer.solvers.heuristics.split_points import kept_values

MOST_SETTINGS = 40  # segmentations that a search tries
DENSITY = 5  # values of b, for each of those, that are looked at where there are too many


def every_sqrt_n(points: list[int]) -> list[int]:
    """Checkpoints at the end of every run of floor(sqrt(n)) of the n split points.

    >>> every_sqrt_n([0, 1, 2, 3, 4, 5, 6, 7])
    [1, 3, 5, 7]
    """
    length = max(1, math.isqrt(len(points)))
    return points[length - 1 :: length]


def greedy(graph: Graph, points: list[int], segment_bytes: int) -> list[int]:
    """Chen's Algorithm 3: a checkpoint at the first split point at which a segment exceeds b = ``segment_bytes``.

    Args:
        graph: the training graph.
        points: the candidates C, ascending.
        segment_bytes: b; 0 makes every split point with bytes a checkpoint, and b >= all bytes none.

    >>> from remat_explorer.instances import linear
    >>> greedy(linear(8), list(range(8)), 2), greedy(linear(8), list(range(8)), 8)
    ([2, 5], [])
    """
    return _cut(_bytes_up_to(graph, points), points, segment_bytes)[0]


def segment_sizes(graph: Graph, points: list[int], most: int = MOST_SETTINGS) -> list[int]:
    """Values of b for Algorithm 3, ascending: one for each segmentation that it can give, or ``most`` of them.

    Chen et al. search a few values around sqrt(xy), with x the bytes of all checkpoints and y those of the largest
    segment (section 4). Here the search covers every b: as long as b stays below the bytes of the smallest segment
    that a checkpoint closes, nothing changes, so that number is the next b. Where there are more than ``most`` such
    values, b goes from the smallest to all bytes in equal ratios, and ``most`` of the segmentations that this gives are
    taken, spread evenly.

    >>> from remat_explorer.instances import linear
    >>> segment_sizes(linear(8), list(range(8)))
    [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    upto = _bytes_up_to(graph, points)
    sizes = [0]
    while closed := _cut(upto, points, sizes[-1])[1]:
        sizes.append(min(closed))
        if len(sizes) > most:
            break
    else:
        return sizes
    ratios = np.geomspace(sizes[1], int(upto[-1]), DENSITY * most).round()
    distinct = {tuple(_cut(upto, points, int(size))[0]): int(size) for size in (0, *ratios[::-1])}
    ascending = sorted(distinct.values())
    return [ascending[i] for i in np.unique(np.linspace(0, len(ascending) - 1, most).round().astype(int))]


def _bytes_up_to(graph: Graph, points: list[int]) -> np.ndarray:
    """Bytes that the forward pass writes up to and with each split point, int64 of shape (points,)."""
    sizes = np.zeros(graph.n, dtype=np.int64)
    for k in forward_operations(graph):
        sizes[k] = graph.value_bytes[kept_values(graph, k)].sum()
    return np.cumsum(sizes)[points]


def _cut(upto: np.ndarray, points: list[int], segment_bytes: int) -> tuple[list[int], list[int]]:
    """Checkpoints of Algorithm 3, and the bytes of the segment that each one closes (its temp)."""
    checkpoints: list[int] = []
    closed: list[int] = []
    before = 0
    while True:
        i = int(np.searchsorted(upto, before + segment_bytes, side="right"))
        if i == len(points):
            return checkpoints, closed
        checkpoints.append(points[i])
        closed.append(int(upto[i]) - before)
        before = int(upto[i])
