"""Memory in use at every point of every stage, for integral and for fractional R and S."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.condensed import Condensed


def live_memory(condensed: Condensed, R: np.ndarray, S: np.ndarray) -> np.ndarray:
    """U of the liveness formulation: what must be in memory while operation k runs in stage t.

    A value is alive after its producer to the degree to which it is kept or any later reader of the stage runs: a
    maximum, so the result is also what a linear program should have charged for a fractional point. What k may
    overwrite counts at k only to the degree to which it is alive after k.

    Args:
        condensed: n operations and their groups of values.
        R: (n, n), between 0 and 1, with ones on the diagonal.
        S: (n, groups), between 0 and 1.

    Returns:
        Bytes as floats of shape (n, n); meaningful where k <= t and R[t,k] > 0.
    """
    n, sizes = condensed.n, condensed.bytes.astype(float)
    kept = np.vstack([S[1:], np.zeros((1, condensed.groups))])
    alive = np.array(S, dtype=float)
    held = condensed.base + alive @ sizes
    U = np.empty((n, n))
    for k in range(n):
        U[:, k] = held + (condensed.output_bytes[k] + condensed.transient[k]) * R[:, k]
        for v in (*condensed.inputs[k], *condensed.outputs[k]):
            later = [j for j in condensed.readers[v] if j > k]
            degree = np.maximum(kept[:, v], R[:, later].max(axis=1)) if later else kept[:, v]
            if v == condensed.overwritten[k]:
                U[:, k] -= condensed.credit[k] * (alive[:, v] - degree)
            held = held + sizes[v] * (degree - alive[:, v])
            alive[:, v] = degree
    return np.tril(U)
