"""Memory in use at every point of every stage, for integral and for fractional R and S."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed


def live_memory(
    condensed: Condensed, R: np.ndarray, S: np.ndarray, stages: Stages | None = None, divisor: int = 1
) -> np.ndarray:
    """U of the liveness formulation: what must be in memory while operation k runs in stage t.

    A value is alive after its producer to the degree to which it is kept or any later reader of the stage runs: a
    maximum, so the result is also what a linear program should have charged for a fractional point. What k may
    overwrite counts at k only to the degree to which it is alive after k.

    Args:
        condensed: n operations and their groups of values.
        R: (entries, n), between 0 and 1, with ones where an operation runs first.
        S: (entries, groups), between 0 and 1.
        stages: what the entries are; the n stages if None.
        divisor: bytes of a block; every size is rounded down to whole blocks, and the base is left out if it is
            not 1.

    Returns:
        Bytes (or blocks) as floats of shape (entries, n); meaningful where an entry is a single stage t, k <= t and
        R[t,k] > 0.
    """
    n, sizes = condensed.n, (condensed.bytes // divisor).astype(float)
    base = condensed.base if stages is None else stages.base
    last = np.arange(n) if stages is None else stages.last
    own, credit = (condensed.output_bytes + condensed.transient) // divisor, condensed.credit // divisor
    kept = np.vstack([S[1:], np.zeros((1, condensed.groups))])
    alive = np.array(S, dtype=float)
    held = alive @ sizes + (base if divisor == 1 else 0)
    U = np.empty((len(S), n))
    for k in range(n):
        U[:, k] = held + own[k] * R[:, k]
        for v in (*condensed.inputs[k], *condensed.outputs[k]):
            later = [j for j in condensed.readers[v] if j > k]
            degree = np.maximum(kept[:, v], R[:, later].max(axis=1)) if later else kept[:, v]
            if v == condensed.overwritten[k]:
                U[:, k] -= credit[k] * (alive[:, v] - degree)
            held = held + sizes[v] * (degree - alive[:, v])
            alive[:, v] = degree
    return np.where(np.arange(n) <= last[:, None], U, 0.0)
