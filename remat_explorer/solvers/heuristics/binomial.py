"""Which states to store, and when: the optimal binomial schedules of REVOLVE.

There are l steps from state 0 to state l, and c slots for states, of which state 0 takes one. To reverse a step its
first state is needed; going back, from the last step to the first, states that are not stored are computed again from
the stored ones. With beta(c, r) = C(c + r, c), and r the smallest number with l <= beta(c, r), the fewest forward steps
are

    t(l, c) = r l - beta(c + 1, r - 1)                                       (1)

and a state m is an optimal one to store next, in a slot of c - 1, if (both parts then need no more than r repetitions,
and no fewer than they must)

    max(beta(c, r - 2), l - beta(c - 1, r)) <= m <= min(beta(c, r - 1), l - beta(c - 1, r - 1)).      (2)

Source: Griewank and Walther, Algorithm 799: revolve (ACM Transactions on Mathematical Software 26, 2000).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def repetitions(steps: int, slots: int) -> int:
    """r: the smallest number of repetitions with which ``slots`` slots reverse ``steps`` steps.

    >>> repetitions(10, 3), repetitions(11, 3)
    (2, 3)
    """
    r = 0
    while beta(slots, r) < steps:
        r += 1
    return r


def forward_steps(steps: int, slots: int) -> int:
    """t(l, c) of (1): forward steps that the reversal of ``steps`` steps needs beside the reversed steps' own.

    Args:
        steps: l, at least 1.
        slots: c, at least 1; one is for state 0.

    >>> forward_steps(10, 3), forward_steps(10, 1), forward_steps(10, 10)
    (15, 45, 9)
    """
    r = repetitions(steps, slots)
    return r * steps - (beta(slots + 1, r - 1) if r else 0)


def stored_states(steps: int, slots: int, sizes: Sequence[int] | None = None) -> np.ndarray:
    """Which states an optimal schedule has in its slots while it reverses each step.

    Args:
        steps: l, at least 1.
        slots: c, at least 1.
        sizes: bytes of states 0 to l - 1; among the choices that (2) leaves, which cost the same number of steps,
            the smallest state is stored, and of equally small ones the last.

    Returns:
        bool of shape (l, l): entry (i, m) tells whether state m is stored while step i is reversed.

    >>> stored_states(4, 2).astype(int).tolist()
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 0]]
    """
    stored = np.zeros((steps, steps), dtype=bool)
    stored[:, 0] = True
    parts = [(0, steps, slots)]  # reverse the steps from the first to before the second, whose first state is stored
    while parts:
        first, end, free = parts.pop()
        if end - first == 1 or free == 1:
            continue
        choices = _optimal_splits(end - first, free)
        m = first + min(choices, key=lambda m: (sizes[first + m] if sizes else 0, -m))
        stored[m:end, m] = True
        parts += [(m, end, free - 1), (first, m, free)]
    return stored


def _optimal_splits(steps: int, slots: int) -> range:
    """The states m of (2), for at least 2 steps and 2 slots."""
    r = repetitions(steps, slots)
    least = max(beta(slots, r - 2), steps - beta(slots - 1, r), 1)
    most = min(beta(slots, r - 1), steps - beta(slots - 1, r - 1))
    return range(least, most + 1)


def beta(slots: int, repetitions: int) -> int:
    """beta(c, r) = C(c + r, c): steps that c slots reverse with r repetitions; 0 where r < 0.

    >>> beta(3, 2)
    10
    """
    return math.comb(slots + repetitions, slots) if repetitions >= 0 else 0
