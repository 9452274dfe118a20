"""Compiled loops over a relaxation's point: its memory, and the interval-path cuts that it violates most."""

from __future__ import annotations

import numpy as np

from remat_explorer.machine_code import entry
from remat_explorer.solvers.search.compiled_state import FlatGraph


@entry
def shortest_paths(
    flat: FlatGraph,
    R: np.ndarray,
    S: np.ndarray,
    sums: np.ndarray,
    active: np.ndarray,
    begin: int,
    first: int,
    cost: np.ndarray,
    through: np.ndarray,
    violation: np.ndarray,
    ends: np.ndarray,
) -> None:
    """Shortest paths for all ends at once, and for each group the end at which its cut is violated most.

    R is of shape (entries, n), S (entries, g), and ``sums`` those of R over the entries before each. ``active`` are
    operations that run again somewhere, ascending; ``begin`` is the entry t1, ``first`` its first stage. Filled are
    ``cost``, g(k) for each end, of shape (n, entries), 0 for operations that are not active; ``through``, the input
    that attains it, or -1 where k's own runs do; and of the worst cut of each group ``violation``, -1 where there is
    none, and ``ends``, its t2.
    """
    entries = len(R)
    violation[:] = -1.0
    for place in range(len(active)):
        k = active[place]
        if k >= first:
            break
        for end in range(begin, entries):
            cost[k, end] = sums[end + 1, k] - sums[begin, k]
            through[k, end] = -1
        for i in range(flat.input_start[k], flat.input_start[k + 1]):
            u = flat.inputs[i]
            made = flat.producer[u]
            for end in range(begin, entries):
                detour = S[begin, u] + cost[made, end]
                if detour < cost[k, end] - 1e-9:
                    cost[k, end] = detour
                    through[k, end] = u
        for v in range(flat.output_start[k], flat.output_start[k + 1]):
            for end in range(begin, entries):
                if through[k, end] >= 0:
                    there = R[end, k] + S[end, v] - S[begin, v] - cost[k, end]
                    if there > violation[v]:
                        violation[v] = there
                        ends[v] = end


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

    R is of shape (entries, n), S (entries, g), U, which is filled, (entries, n). Rows of entries that are not wanted,
    and points after ``last``, are left as they are. ``base`` is what is there all through an entry, ``divisor`` the
    bytes of a block, ``alive`` scratch space of shape (g,).
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
