"""Memory in use at every point of every stage, for integral and for fractional R and S."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.flat_graph import FlatGraph


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
        Bytes (or blocks) as floats of shape (entries, n), 0 for merged runs and for k > t; meaningful where R[t,k] > 0.
    """
    from remat_explorer.solvers.search.point_memory import fill_memory  # compiled on its first use

    n = condensed.n
    wanted = np.ones(n, dtype=bool) if stages is None else stages.single
    last = np.arange(n) if stages is None else stages.last
    base = condensed.base if stages is None else stages.base
    there = base if divisor == 1 else np.zeros_like(base)
    U = np.zeros((len(S), n))
    alive = np.empty(condensed.groups)
    points = (np.ascontiguousarray(matrix, dtype=float) for matrix in (R, S))
    fill_memory(FlatGraph.of(condensed), *points, wanted, last, there, divisor, alive, U)
    return U
