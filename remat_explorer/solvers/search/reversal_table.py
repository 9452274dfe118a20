"""The least cost of visiting positions in reverse, compiled."""

from __future__ import annotations

import numpy as np

from remat_explorer.machine_code import entry


@entry
def fill_from(least, below, lowest, first, costs, again, sizes, rooms):
    """Fill the table of `remat_explorer.solvers.bounds.reversal` for all ranges that begin with one position.

    Args:
        least: T, by the end of a range, slots that are taken, and its beginning, float64 of shape
            (K + 1, slots, K + 1); ranges that begin above ``lowest`` are filled, and empty ones are 0.
        below: room for T of ranges that begin with it, by slots and end, float64 of shape (slots, K + 1).
        lowest: the position with which the ranges begin.
        first: the end of the first range that is not filled yet.
        costs: of all of each position, float64 of shape (K,).
        again: of what its visit needs, from nothing of it, float64 of shape (K,).
        sizes: slots of its smallest value, int64 of shape (K,).
        rooms: slots that its visit leaves, int64 of shape (K,); as many as there are stand for any number.
    """
    most = least.shape[1] - 1
    for s in range(most + 1):
        for end in range(lowest, first):
            below[s, end] = least[end, s, lowest]
    for end in range(first, len(costs) + 1):
        for s in range(most + 1):
            best, before, smallest = np.inf, 0.0, most
            for i in range(lowest, end):
                smallest = min(smallest, sizes[i])
                if s <= rooms[i] or rooms[i] >= most:
                    cost = before + again[i]
                    if i < end - 1:
                        stays = least[end, min(most, s + sizes[i]), i + 1] - again[i]
                        other = least[end, min(most, s + smallest), i + 1]
                        cost += costs[i] + min(stays, other)
                    best = min(best, cost + below[s, i])
                before += costs[i]
            least[end, s, lowest] = below[s, end] = best
