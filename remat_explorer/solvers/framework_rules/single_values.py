"""Stretches of the forward pass that are entered and left by one value."""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph


def single_value_stretches(graph: Graph) -> list[list[int]]:
    """The forward operations, ascending, as the longest chain of stretches that pass one value on to the next.

    >>> from remat_explorer.instances import linear
    >>> single_value_stretches(linear(3))
    [[0], [1], [2]]
    """
    forward = np.flatnonzero(~graph.is_backward).tolist()
    last_read = [max((k for k in readers if not graph.is_backward[k]), default=-1) for readers in graph.readers]
    chain: list[list[int]] = [[]]
    passing: set[int] = set()  # values that a later forward operation reads
    for k in forward:
        chain[-1].append(k)
        passing |= set(graph.outputs(k))
        passing = {v for v in passing if last_read[v] > k}
        if len(passing) == 1 and k != forward[-1]:
            chain.append([])
    return [stretch for stretch in chain if stretch]
