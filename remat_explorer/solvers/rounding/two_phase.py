"""Two-phase rounding: round what is retained, then compute as little as that allows.

Source: Jain et al., Checkmate (MLSys 2020), section 5.2 and Algorithm 2.
"""

from __future__ import annotations

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.condensed import Condensed

DIGITS = 6  # of S*, so that a solver's tolerance does not decide on which side of a threshold a degree lies


def minimal_R(condensed: Condensed, S: np.ndarray) -> np.ndarray:
    """The second phase: the least R that is correct with a given S. No correct R with this S is smaller anywhere.

    It starts with R = I, then computes what a checkpoint needs, until (1c) holds, and what an operation reads, until
    (1b) holds. Both loops of Algorithm 2 end at the same R in whichever order violations are repaired; here stages run
    forward, and operations backward, so that each is looked at once.

    Args:
        condensed: n operations and g groups of values.
        S: which groups are retained into each stage, bool of shape (n, g); strictly lower triangular, (1d) and (8b).

    Returns:
        bool of shape (n, n).

    >>> from remat_explorer.instances import linear
    >>> chain = Condensed.of(linear(1))  # v0, the loss v1, and the gradient v2, which reads both
    >>> minimal_R(chain, np.zeros((3, 2), dtype=bool)).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [1, 1, 1]])
    """
    S = np.asarray(S, dtype=bool)
    none = np.zeros(condensed.groups, dtype=bool)  # nothing is retained after the last stage
    rows = zip(S, [*S[1:], none], strict=True)
    return np.array([minimal_row(condensed, t, kept, later) for t, (kept, later) in enumerate(rows)])


def minimal_row(condensed: Condensed, t: int, kept: np.ndarray, later: np.ndarray) -> np.ndarray:
    """Row t of `minimal_R`, which depends on two rows of S alone.

    Args:
        condensed: n operations and g groups of values.
        t: the stage.
        kept: row t of S, bool of shape (g,).
        later: row t + 1 of S; nothing, for the last stage.

    Returns:
        bool of shape (n,).
    """
    row = np.zeros(condensed.n, dtype=bool)
    row[t] = True
    row[condensed.producer[later & ~kept]] = True  # (1c): S[t+1,i] <= R[t,i] + S[t,i]
    for j in range(t, -1, -1):  # (1b): R[t,j] <= R[t,i] + S[t,i]
        if row[j]:
            read = condensed.input_groups[j]
            row[condensed.producer[read[~kept[read]]]] = True
    return row


def values_of(condensed: Condensed, S: np.ndarray) -> np.ndarray:
    """S of values from S of groups, bool of shape (n, values): persistent values stay, unread ones are not retained."""
    graph = condensed.graph
    spread = np.zeros((condensed.n, len(graph.values)), dtype=bool)
    group_of = {(int(graph.producer[v]), graph.readers[v]): group for group, v in enumerate(condensed.member)}
    for v in range(len(graph.values)):
        if graph.persistent[v]:
            spread[int(graph.producer[v]) + 1 :, v] = True
        elif graph.readers[v]:
            spread[:, v] = S[:, group_of[int(graph.producer[v]), graph.readers[v]]]
    return spread


def schedule_of(condensed: Condensed, S: np.ndarray) -> Schedule:
    """The schedule of a given S and the minimal R.

    Args:
        condensed: n operations and g groups of values.
        S: as for `minimal_R`.
    """
    S = np.asarray(S, dtype=bool)
    return Schedule(condensed.graph, minimal_R(condensed, S), values_of(condensed, S))


def round_deterministically(condensed: Condensed, S: np.ndarray, threshold: float = 0.5) -> Schedule:
    """Algorithm 2: S[t,i] = 1 exactly where S*[t,i] > threshold, then the minimal R.

    The schedule is correct; whether it fits into a budget is for its plan to say.

    Args:
        condensed: n operations and g groups of values.
        S: S*, float of shape (n, g).
        threshold: above which a value is retained.
    """
    return schedule_of(condensed, S.round(DIGITS) > threshold)
