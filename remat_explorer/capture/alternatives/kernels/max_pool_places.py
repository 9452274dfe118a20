"""The places of maxima in their windows as a result of their own, made later than the maxima, from what is still kept.

They are those that `max_pool.max_pool_with_places` makes with the maxima, one byte each.
"""

from __future__ import annotations

import torch

from remat_explorer.capture.alternatives.kernels import gpu_pooling
from remat_explorer.capture.alternatives.kernels.flat import samples
from remat_explorer.capture.alternatives.kernels.max_pool import Sizes, room_for, room_like, write_places

aten = torch.ops.aten


def packed_places(
    index: torch.Tensor, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> torch.Tensor:
    """The place of each maximum in its window from PyTorch's index of 8 bytes, a few samples at a time: uint8.

    Args:
        index: (samples, channels, rows, columns), where each maximum lies in its input plane.
        size: the input's shape.
        kernel, stride, padding, dilation, ceil_mode: as for `max_pool.max_pool_with_places`.

    >>> packed_places(torch.tensor([[[[2]]]]), [1, 1, 2, 2], [2, 2], [2, 2], [0, 0], [1, 1], False).tolist()
    [[[[2]]]]
    """
    places = torch.empty_like(index, dtype=torch.uint8)
    for part in samples(index):
        write_places(index[part].clone(), places[part], kernel, stride, padding, dilation, size[-1])
    return places


def max_pool_places(
    source: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> torch.Tensor:
    """The place of each maximum in its window, uint8, from the input, without the maxima.

    Args:
        source, kernel, stride, padding, dilation, ceil_mode: as for `max_pool.max_pool_with_places`.

    >>> max_pool_places(torch.tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), [2, 2], [2, 2], [0, 0], [1, 1], False).tolist()
    [[[[2]]]]
    """
    if gpu_pooling.serves(source):
        places = room_for(source, kernel, stride, padding, dilation, ceil_mode, torch.uint8)
        gpu_pooling.pooled(source, None, places, kernel, stride, padding, dilation)
        return places
    places = None
    for part in samples(source):
        index = aten.max_pool2d_with_indices.default(source[part], kernel, stride, padding, dilation, ceil_mode)[1]
        if places is None:
            places = room_like(source, index, torch.uint8)
        write_places(index, places[part], kernel, stride, padding, dilation, source.shape[-1])
        del index
    if places is None:  # no samples
        index = aten.max_pool2d_with_indices.default(source, kernel, stride, padding, dilation, ceil_mode)[1]
        places = index.to(torch.uint8)
    return places
