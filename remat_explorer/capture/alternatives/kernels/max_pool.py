"""Max pooling whose backward pass needs one byte an output, or nothing but the input.

PyTorch keeps the index of each maximum in its input plane, 8 bytes. Its place within the window is enough: one byte
for windows of at most 256 entries. A few samples are taken at a time, so 8-byte indices exist for those only; on CUDA,
the kernels of `gpu_pooling` have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from remat_explorer.capture.alternatives.kernels import gpu_pooling
from remat_explorer.capture.alternatives.kernels.flat import samples

aten = torch.ops.aten
LARGEST_WINDOW = 256  # entries that one byte can tell apart
Sizes = Sequence[int]


def max_pool_with_places(
    source: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The maxima, and the place of each one in its window: row * window width + column, uint8. Bit-equal.

    Args:
        source: (samples, channels, height, width).
        kernel, stride, padding, dilation: of height and width.
        ceil_mode: whether windows may start in the last rows and columns that do not fill one.

    >>> maxima, places = max_pool_with_places(torch.tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), [2, 2], [2, 2], [0, 0],
    ...                                       [1, 1], False)
    >>> maxima.tolist(), places.tolist()
    ([[[[4.0]]]], [[[[2]]]])
    """
    if gpu_pooling.serves(source):
        maxima = room_for(source, kernel, stride, padding, dilation, ceil_mode, source.dtype)
        places = torch.empty_like(maxima, dtype=torch.uint8)
        gpu_pooling.pooled(source, maxima, places, kernel, stride, padding, dilation)
        return maxima, places
    maxima = places = None
    for part in samples(source):
        pooled, index = aten.max_pool2d_with_indices.default(source[part], kernel, stride, padding, dilation, ceil_mode)
        if maxima is None or places is None:
            maxima = room_like(source, pooled, source.dtype)
            places = room_like(source, pooled, torch.uint8)
        maxima[part] = pooled
        write_places(index, places[part], kernel, stride, padding, dilation, source.shape[-1])
    if maxima is None or places is None:  # no samples
        maxima, index = aten.max_pool2d_with_indices.default(source, kernel, stride, padding, dilation, ceil_mode)
        places = index.to(torch.uint8)
    return maxima, places


def max_pool_alone(
    source: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> torch.Tensor:
    """The maxima without their indices. Bit-equal."""
    if gpu_pooling.serves(source):
        maxima = room_for(source, kernel, stride, padding, dilation, ceil_mode, source.dtype)
        gpu_pooling.pooled(source, maxima, None, kernel, stride, padding, dilation)
        return maxima
    maxima = None
    for part in samples(source):
        pooled = aten.max_pool2d_with_indices.default(source[part], kernel, stride, padding, dilation, ceil_mode)
        if maxima is None:
            maxima = room_like(source, pooled[0], source.dtype)
        maxima[part] = pooled[0]
        del pooled
    if maxima is None:
        return aten.max_pool2d_with_indices.default(source, kernel, stride, padding, dilation, ceil_mode)[0]
    return maxima


def max_pool_gradient_from_indices(
    gradient: torch.Tensor,
    index: torch.Tensor,
    size: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> torch.Tensor:
    """PyTorch's own backward kernel without the input, of which it needs but the shape. Bit-equal.

    Args:
        gradient, index: (samples, channels, rows, columns), in the memory format of the input.
        size: the input's shape.
        kernel, stride, padding, dilation, ceil_mode: as for `max_pool_with_places`.
    """
    result = gradient.new_empty(tuple(size)).contiguous(memory_format=_format(gradient))
    if result.numel() == 0:
        return result
    aten.max_pool2d_with_indices_backward.grad_input(
        gradient, result, kernel, stride, padding, dilation, ceil_mode, index, grad_input=result
    )
    return result


def max_pool_gradient_from_places(
    gradient: torch.Tensor,
    places: torch.Tensor,
    size: Sizes,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> torch.Tensor:
    """The gradient of the input from the places in the windows. Bit-equal.

    Args:
        places: what `max_pool_with_places` gave; the others as for `max_pool_gradient_from_indices`.
    """
    result = _gradient_like(gradient, size)
    if gpu_pooling.serves(gradient, places, result):
        gpu_pooling.spread(gradient, places, result, kernel, stride, padding, dilation)
        return result
    for part in samples(result):
        index, target = _index(places[part], kernel, stride, padding, dilation, size[-1]), result[part]
        aten.max_pool2d_with_indices_backward.grad_input(
            gradient[part], target, kernel, stride, padding, dilation, ceil_mode, index, grad_input=target
        )
        del index
    return result


def max_pool_gradient_recomputed(
    gradient: torch.Tensor,
    source: torch.Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
) -> torch.Tensor:
    """The gradient of the input with the indices, or on CUDA the places, found once more. Bit-equal.

    Args:
        gradient: (samples, channels, rows, columns), in the memory format of ``source``.
        source, kernel, stride, padding, dilation, ceil_mode: as for `max_pool_with_places`.
    """
    if gpu_pooling.serves(gradient, source) and math.prod(kernel) <= LARGEST_WINDOW:
        places = room_for(source, kernel, stride, padding, dilation, ceil_mode, torch.uint8)
        gpu_pooling.pooled(source, None, places, kernel, stride, padding, dilation)
        return max_pool_gradient_from_places(
            gradient, places, source.shape, kernel, stride, padding, dilation, ceil_mode
        )
    result = _gradient_like(gradient, source.shape)
    for part in samples(source):
        some, target = source[part], result[part]
        _, index = aten.max_pool2d_with_indices.default(some, kernel, stride, padding, dilation, ceil_mode)
        aten.max_pool2d_with_indices_backward.grad_input(
            gradient[part], some, kernel, stride, padding, dilation, ceil_mode, index, grad_input=target
        )
        del index
    return result


def room_for(
    source: torch.Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Room for an entry for each window, in the memory format of the source."""
    shape = torch.empty_like(source, device="meta")
    pooled = aten.max_pool2d_with_indices.default(shape, kernel, stride, padding, dilation, ceil_mode)[0]
    return room_like(source, pooled, dtype)


def _format(tensor: torch.Tensor) -> torch.memory_format:
    last = torch.channels_last
    return last if tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous() else torch.contiguous_format


def room_like(source: torch.Tensor, sample: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Room for the results of all samples, in the memory format of ``source``."""
    shape = (len(source), *sample.shape[1:])
    return torch.empty(shape, dtype=dtype, device=source.device, memory_format=_format(source))


def _gradient_like(gradient: torch.Tensor, size: Sizes) -> torch.Tensor:
    return torch.empty(tuple(size), dtype=gradient.dtype, device=gradient.device, memory_format=_format(gradient))


def _corners(index: torch.Tensor, stride: Sizes, padding: Sizes) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column at which each window starts, below 0 in the padding."""
    rows, columns = index.shape[-2:]
    down = torch.arange(rows, device=index.device).mul_(stride[0]).sub_(padding[0]).view(1, 1, rows, 1)
    across = torch.arange(columns, device=index.device).mul_(stride[1]).sub_(padding[1]).view(1, 1, 1, columns)
    return down, across


def write_places(
    index: torch.Tensor, out: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, width: int
) -> None:
    """Write the place of each maximum in its window; ``index`` counts along the rows of the plane."""
    down, across = _corners(index, stride, padding)
    row = index.div(width, rounding_mode="floor")
    column = index.sub_(row, alpha=width).sub_(across)
    row.sub_(down)
    if tuple(dilation) != (1, 1):
        row.div_(dilation[0], rounding_mode="floor")
        column.div_(dilation[1], rounding_mode="floor")
    out.copy_(row.mul_(kernel[1]).add_(column))


def _index(
    places: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, width: int
) -> torch.Tensor:
    """The index of each maximum in its plane, int64: what `write_places` was made from."""
    down, across = _corners(places, stride, padding)
    column = places.to(torch.int64)
    row = column.div(kernel[1], rounding_mode="floor")
    column.sub_(row, alpha=kernel[1]).mul_(dilation[1]).add_(across)
    return column.add_(row.mul_(dilation[0]).add_(down), alpha=width)
