"""What a schedule keeps of each operation for the backward pass."""

from __future__ import annotations

import numpy as np

from remat_explorer.schedule import Schedule


def kept_bytes(schedule: Schedule) -> np.ndarray:
    """Bytes of each operation's values that the forward pass leaves to the backward pass, float64 of shape (n,).

    They are what is retained into the first stage of the backward pass.

    >>> from remat_explorer.instances import linear
    >>> keep = Schedule(linear(1), np.eye(3), np.tril(np.ones((3, 3)), -1))
    >>> kept_bytes(keep).tolist()
    [1.0, 0.0, 0.0]
    """
    graph = schedule.graph
    backward = graph.is_backward[graph.mandatory]
    first = int(backward.argmax()) if backward.any() else schedule.stages - 1
    kept = schedule.retained_into(min(first, schedule.stages - 1)) * graph.value_bytes
    return np.bincount(graph.producer, weights=kept, minlength=graph.n)
