"""How the published program counts the memory of keeping everything, and what counting parameters twice does to it.

In that program every forward value stays to the end of the backward pass. What neither the present stage reads nor the
next one begins with is dropped at the start of the stage, which only the last stage feels. A plan frees each value
after its last use instead, and needs less: both are right for what they count.
"""

from __future__ import annotations

import numpy as np

from remat_explorer.graph import Graph


def kept_for_good_peak(graph: Graph) -> int:
    """Bytes, without resident ones, that keeping every forward value for good takes.

    Args:
        graph: one implementation per operation, each with its backward pass.

    Source: Jain et al., Checkmate (MLSys 2020), section 4.9, for what is dropped at the start of a stage.

    >>> from remat_explorer.instances import linear
    >>> kept_for_good_peak(linear(8))
    10
    """
    first_backward = int(np.flatnonzero(graph.is_backward)[0])
    last_reader = np.array([max(readers, default=-1) for readers in graph.readers])
    kept_until = np.where(graph.producer < first_backward, graph.n - 1, last_reader)
    peak = 0
    for t in range(graph.n):
        begun = (graph.producer < t) & (kept_until >= t)
        read = np.isin(np.arange(len(graph.values)), graph.inputs(t))
        here = (begun & (read | (kept_until > t) & (t + 1 < graph.n))) | (graph.producer == t)
        peak = max(peak, int(graph.value_bytes[here].sum()))
    return peak


def largest_batch(memory: int, fixed: int, peak: int, times: int = 1) -> int:
    """Checkmate's (11): examples of ``peak`` bytes that fit into ``memory``, parameters counted ``times`` times.

    Args:
        memory: bytes of the device.
        fixed: bytes that do not grow with the batch: parameters and their gradients.
        peak: bytes of one example.
        times: 1 is the paper's formula; 2 gives VGG19's published batches.

    >>> largest_batch(16 * 10**9, 1149337920, 81723296), largest_batch(16 * 10**9, 1149337920, 81723296, times=2)
    (181, 167)
    """
    return max(0, memory - times * fixed) // peak
