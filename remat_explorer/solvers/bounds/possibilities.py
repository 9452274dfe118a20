"""What may run again or be held where, before any solver is asked."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed


def possibilities(stages: Stages, allowed: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What can serve something, and what cannot be otherwise.

    An operation can usefully run again in an entry only if something it writes is read there by a first run, by
    another useful repetition, or can usefully be held afterwards. A group that a first run reads must be held from
    where it can last be computed again.

    Args:
        stages: the entries.
        allowed: which operation may run again in which stage, bool of shape (n, n); any if None.

    Returns:
        Which operations may run again in which entry, bool (entries, n); which groups may be in memory at its start,
        and which must be, bool (entries, groups).
    """
    condensed, entries = stages.condensed, len(stages)
    reruns = np.zeros((entries, condensed.n), dtype=bool)
    holds = np.zeros((entries, condensed.groups), dtype=bool)
    must_hold = np.zeros((entries, condensed.groups), dtype=bool)
    wanted = np.zeros(condensed.groups, dtype=bool)
    must, everything = wanted.copy(), np.ones(condensed.n, dtype=bool)
    for q in range(entries - 1, -1, -1):
        first, last = int(stages.first[q]), int(stages.last[q])
        may = everything if allowed is None else np.logical_or.reduce(allowed[first : last + 1])
        wanted |= stages.reads[q]
        for k in range(first - 1, -1, -1):
            if may[k] and any(wanted[v] for v in condensed.outputs[k]):
                reruns[q, k] = True
                wanted[list(condensed.inputs[k])] = True
        wanted &= condensed.producer < first
        holds[q] = wanted
        must = (must | stages.reads[q]) & ~reruns[q, condensed.producer] & (condensed.producer < first)
        must_hold[q] = must
    return reruns, holds, must_hold


def last_use(condensed: Condensed) -> np.ndarray:
    """The last stage in which each group can be worth having: for a first run, or for a recomputation that is.

    Args:
        condensed: n operations and their groups of values.

    Returns:
        int of shape (groups,).
    """
    last = np.zeros(condensed.groups, dtype=np.int64)
    for v in range(condensed.groups - 1, -1, -1):  # readers come after producers, so their outputs are done
        last[v] = max(max(j, *last[list(condensed.outputs[j])], 0) for j in condensed.readers[v])
    return last
