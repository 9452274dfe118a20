"""The memory of fractional and integral points, compiled."""

from __future__ import annotations

import numpy as np

from remat_explorer.machine_code import entry
from remat_explorer.solvers.search.flat_graph import FlatGraph


@entry
def fill_memory(
    flat: FlatGraph,
    R: np.ndarray,
    S: np.ndarray,
    wanted: np.ndarray,
    last: np.ndarray,
    base: np.ndarray,
    divisor: int,
    alive: np.ndarray,
    U: np.ndarray,
) -> None:
    """Write the memory at every point of the wanted entries; `live_memory` says what it is.

    Args:
        flat: n operations and g groups of values.
        R: float64 of shape (entries, n).
        S: float64 of shape (entries, g).
        wanted: bool of shape (entries,); the rows of other entries are left as they are.
        last: int64 of shape (entries,); points after it are left as they are.
        base: what is there all through an entry, int64 of shape (entries,).
        divisor: bytes of a block.
        alive: a scratch array, float64 of shape (g,).
        U: float64 of shape (entries, n), to be filled.
    """
    entries, groups = S.shape
    for q in range(entries):
        if not wanted[q]:
            continue
        held = float(base[q])
        for v in range(groups):
            alive[v] = S[q, v]
            held += alive[v] * (flat.bytes[v] // divisor)
        for k in range(last[q] + 1):
            U[q, k] = held + (flat.needed[k] // divisor) * R[q, k]
            begin, end = flat.input_start[k], flat.input_start[k + 1]
            written = flat.output_start[k]
            for place in range(begin, end + flat.output_start[k + 1] - written):
                v = flat.inputs[place] if place < end else written + place - end
                degree = S[q + 1, v] if q + 1 < entries else 0.0
                for reader in range(flat.reader_start[v], flat.reader_start[v + 1]):
                    j = flat.readers[reader]
                    if j > k and R[q, j] > degree:
                        degree = R[q, j]
                if v == flat.overwritten[k]:
                    U[q, k] -= (flat.credit[k] // divisor) * (alive[v] - degree)
                held += (flat.bytes[v] // divisor) * (degree - alive[v])
                alive[v] = degree
