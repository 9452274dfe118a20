"""How the published program counts the memory of its baselines, and what its counting parameters twice does to it.

There a checkpoint stays to the end of the backward pass, and with it everything of the segment that is being computed.
What neither the present stage reads nor the next one begins with is dropped at the start of the stage. A plan frees
each value after its last use instead, and needs less: both are right for what they count.

In a layer graph operation k writes value k, and the gradient of forward operation k is operation n - 1 - k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.solvers.methods.chen import articulation_split_points


def kept_for_good_peak(graph: Graph) -> int:
    """Bytes, without resident ones, that keeping every forward value for good takes.

    Args:
        graph: a layer graph.

    >>> from remat_explorer.instances import linear
    >>> kept_for_good_peak(linear(8))
    10
    """
    first_backward = int(np.flatnonzero(graph.is_backward)[0])
    last_reader = np.array([max(readers, default=-1) for readers in graph.readers])
    kept_until = np.where(graph.producer < first_backward, graph.n - 1, last_reader)
    stages = np.arange(graph.n)[:, None]
    return peak_of_stages(graph, np.eye(graph.n, dtype=bool), (graph.producer < stages) & (kept_until >= stages))


def peak_of_stages(graph: Graph, R: np.ndarray, S: np.ndarray) -> int:
    """The largest sum of bytes, without resident ones, at any operation of any stage.

    Args:
        graph: a layer graph.
        R: what each stage computes, bool of shape (n, n).
        S: what is held when it begins, bool of shape (n, n).

    Source: Jain et al., Checkmate (MLSys 2020), section 4.9, for what is dropped at the start of a stage.
    """
    peak = 0
    for t in range(graph.n):
        kept = S[t + 1] if t + 1 < graph.n else np.zeros(graph.n, dtype=bool)
        runs = np.flatnonzero(R[t]).tolist()
        last = np.full(graph.n, -1)  # operation of the stage that reads each value last
        for k in runs:
            last[list(graph.inputs(k))] = k
        held = S[t] & (kept | (last >= 0))
        for k in runs:
            held[k] = True
            peak = max(peak, int(graph.value_bytes[held].sum()))
            held &= kept | (last > k)
    return peak


def segment_stages(graph: Graph, checkpoints: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """R and S of a choice of checkpoints, as the published program has them.

    Operations fall into segments that end at a checkpoint or its gradient. A stage begins with the checkpoints so far,
    what its own segment has computed, the last result, and, in the backward pass, all of the segment that its own one
    is the gradient of. R is the least that S needs.

    Args:
        graph: a layer graph.
        checkpoints: forward operations.

    >>> from remat_explorer.instances import linear
    >>> R, S = segment_stages(linear(4), [1, 3])
    >>> ["".join(map(str, row)) for row in S[5:].astype(int)]
    ['010110000', '011101000', '011100100', '110100010']
    """
    n, numbers = graph.n, np.arange(graph.n)
    forward = ~graph.is_backward
    ends = sorted({*checkpoints, *(n - 1 - k for k in checkpoints), n - 1})
    segment = np.searchsorted(ends, numbers)
    is_checkpoint = np.isin(numbers, checkpoints)
    S = np.zeros((n, n), dtype=bool)
    for t in range(1, n):
        S[t] = (numbers < t) & (is_checkpoint | (segment == segment[t]) | (numbers == t - 1))
        if segment[t] > len(checkpoints):
            S[t] |= forward & (segment == 2 * len(checkpoints) - segment[t])
    R = np.eye(n, dtype=bool)
    for t in range(n):
        if t + 1 < n:
            R[t] |= S[t + 1] & ~S[t]
        for k in range(n - 1, -1, -1):
            if R[t, k]:
                missing = [i for i in graph.inputs(k) if not S[t, i]]
                R[t, missing] = True
    return R, S


def published_sqrt_n_checkpoints(graph: Graph) -> list[int]:
    """The checkpoints of the published program's AP √n: every floor(sqrt(n))-th split point, as it counts them.

    It counts them in the order in which Python gives the elements of a set, which for numbers above 127 need not be
    ascending: so they are on ResNet-50, whose checkpoints are not those of the rule.

    >>> from remat_explorer.instances import linear
    >>> published_sqrt_n_checkpoints(linear(8))
    [1, 3, 5, 7]
    """
    points = list(set(articulation_split_points(graph)))
    length = max(1, math.isqrt(len(points)))
    return sorted(points[length - 1 :: length])


def largest_batch(memory: int, fixed: int, peak: int, times: int = 1) -> int:
    """Checkmate's (11): examples of ``peak`` bytes that fit into ``memory``, parameters counted ``times`` times.

    Args:
        memory: bytes of the device.
        fixed: bytes that do not grow with the batch: parameters and their gradients.
        peak: bytes of one example.
        times: 1 is the paper's formula; 2 gives VGG19's published batches, and is what the published program does.

    >>> largest_batch(16 * 10**9, 1149337920, 81723296), largest_batch(16 * 10**9, 1149337920, 81723296, times=2)
    (181, 167)
    """
    return max(0, memory - times * fixed) // peak
