"""Interval-path cuts: what is there now was held before, or made from what was.

For groups v_0, v_1, ..., v_m, each an input of the producer of the one before, and stages t1 <= t2:

    R[t2,p(v_0)] + S[t2,v_0] <= sum over i of S[t1,v_i] + sum over t1 <= t <= t2 of R[t,p(v_m)]

Proof: if v_0 is there in t2 and was not held at t1, its producer ran in some stage between, so v_1 was there in that
stage; and so on down to v_m, whose producer ran. With m = 0 and t1 = t2 nothing is said; with one more input it is
(1b). The most violated path is a shortest one: with f(v) = S[t1,v] + g(p(v)) and g(k) = min(sum of R[t,k], min over
inputs u of k of f(u)), the right-hand side for v_0 is f(v_0). Merged runs of stages are entries like any other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_explorer.solvers.bounds.row_settings import ROWS
from remat_explorer.solvers.bounds.stages import Stages
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.search.flat_graph import FlatGraph


class PathCut(NamedTuple):
    """Entries t1 and t2 of the stages, and the groups v_0, v_1, ... of the path."""

    begin: int
    end: int
    path: tuple[int, ...]

    def slack(self, condensed: Condensed, R: np.ndarray, S: np.ndarray) -> float:
        """Right-hand side minus left-hand side at R (entries, n) and S (entries, groups); negative where violated."""
        made, remade = int(condensed.producer[self.path[0]]), int(condensed.producer[self.path[-1]])
        there = R[self.end, made] + S[self.end, self.path[0]]
        return float(S[self.begin, list(self.path)].sum() + R[self.begin : self.end + 1, remade].sum() - there)


def violated_cuts(
    stages: Stages, R: np.ndarray, S: np.ndarray, most: int = ROWS.most_paths, violated: float = ROWS.paths
) -> list[PathCut]:
    """The most violated cuts at a point, at most one for each group and first stage, the worst first.

    Args:
        stages: the entries.
        R: (entries, n), between 0 and 1.
        S: (entries, groups), between 0 and 1.
        most: cuts to return.
        violated: by how much, at least.
    """
    from remat_explorer.solvers.search.cut_paths import shortest_paths  # compiled on its first use

    cuts: list[tuple[float, PathCut]] = []
    ever = R.copy()
    ever[np.arange(stages.condensed.n) >= stages.first[:, None]] = 0.0
    active = np.flatnonzero(ever.max(axis=0) > violated / 4)  # what is not computed again is in no violated cut's end
    sums = np.vstack([np.zeros((1, R.shape[1])), np.cumsum(R, axis=0)])
    cost, through = np.zeros((R.shape[1], len(R))), np.full((R.shape[1], len(R)), -1, dtype=np.int32)
    violation, ends = np.empty(S.shape[1]), np.zeros(S.shape[1], dtype=np.int64)
    producer, flat = stages.condensed.producer, FlatGraph.of(stages.condensed)
    R, S = np.ascontiguousarray(R), np.ascontiguousarray(S)
    for begin in range(len(stages) - 1):
        first = int(stages.first[begin])
        shortest_paths(flat, R, S, sums, active, begin, first, cost, through, violation, ends)
        for v in np.flatnonzero(violation > violated).tolist():
            end, path = int(ends[v]), [v]
            while through[producer[path[-1]], end] >= 0:
                path.append(int(through[producer[path[-1]], end]))
            cuts.append((float(violation[v]), PathCut(begin, end, tuple(path))))
    cuts.sort(key=lambda pair: -pair[0])
    return [cut for _, cut in cuts[:most]]
