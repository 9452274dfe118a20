"""The least cost of visiting positions in reverse, compiled."""

from __future__ import annotations

import numpy as np

from remat_explorer.machine_code import entry


@entry
def fill_from(least, below, lowest, costs, again, sizes, beside, without, penalties):
    """Fill the table of `reversal_bound` for all ranges that begin with ``lowest``.

    ``least`` is T, by the end of a range, slots that are taken, and its beginning, float64 of shape (K + 1, slots + 1,
    K + 1); ranges that begin above ``lowest`` are filled. ``below`` is room for T of ranges that begin with it, by
    slots and end, float64 of shape (slots + 1, K + 1). The others are of each position, of shape (K,): ``costs`` of all
    of it and ``again`` of what its visit needs, from nothing of it; ``sizes``, slots of its smallest value; slots that
    its visit leaves ``beside`` its bystander, where as many as there are stand for any number, and ``without`` it; and
    ``penalties``, what that costs. Costs are float64, slots int64.
    """
    most = least.shape[1] - 1
    for s in range(most + 1):
        below[s, lowest] = 0.0
    for end in range(lowest + 1, len(costs) + 1):
        for s in range(most + 1):
            best, before, smallest = np.inf, 0.0, most
            for i in range(lowest, end):
                smallest = min(smallest, sizes[i])
                if s <= without[i] or without[i] >= most:
                    cost = before + again[i]
                    if s > beside[i] and beside[i] < most:
                        cost += penalties[i]
                    if i < end - 1:
                        stays = least[end, min(most, s + sizes[i]), i + 1] - again[i]
                        other = least[end, min(most, s + smallest), i + 1]
                        cost += costs[i] + min(stays, other)
                    best = min(best, cost + below[s, i])
                before += costs[i]
            least[end, s, lowest] = below[s, end] = best
