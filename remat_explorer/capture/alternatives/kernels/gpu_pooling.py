"""Max pooling with one byte an output by Triton kernels, for CUDA: bit for bit what `max_pool` makes.

Without Triton, or on the CPU, `max_pool` goes on without them, a few samples at a time. A tensor is walked in the order
of its storage: of contiguous ones, entries of a row lie side by side; of those with channels last, the channels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from remat_explorer.capture.alternatives.kernels.flat import flat
from remat_explorer.capture.alternatives.kernels.gpu_masks import HAS_TRITON

BLOCK = 256  # entries, written by one program
Sizes = Sequence[int]

if HAS_TRITON:  # pragma: no cover (compiled for a GPU, or interpreted)
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]

    @triton.jit
    def _pool(  # type: ignore[no-untyped-def]
        source, maxima, places, entries, inner, height, width, rows, columns,
        kernel_y: tl.constexpr, kernel_x: tl.constexpr,
        stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
        with_maxima: tl.constexpr, with_places: tl.constexpr, wide: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        entry = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = entry < entries
        channel, rest = entry % inner, entry // inner
        across = rest % columns * stride_x - padding_x
        down = rest // columns % rows * stride_y - padding_y
        plane = rest // (columns * rows) * height
        best = tl.zeros([block], wide)
        place = tl.full([block], 0, tl.int32)
        begun = entry < 0  # false everywhere: no entry of the window was seen
        for a in range(kernel_y):
            for b in range(kernel_x):
                y, x = down + a * dilation_y, across + b * dilation_x
                seen = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
                value = tl.load(source + ((plane + y) * width + x) * inner + channel, mask=seen, other=0.0).to(wide)
                better = seen & (~begun | (value > best) | (value != value))  # the last NaN, else the first maximum
                best = tl.where(better, value, best)
                place = tl.where(better, a * kernel_x + b, place)
                begun = begun | seen
        if with_maxima:
            tl.store(maxima + entry, best.to(maxima.dtype.element_ty), mask=inside)
        if with_places:
            tl.store(places + entry, place.to(tl.uint8), mask=inside)

    @triton.jit
    def _spread(  # type: ignore[no-untyped-def]
        gradient, places, result, entries, inner, height, width, rows, columns,
        kernel_y: tl.constexpr, kernel_x: tl.constexpr,
        stride_y, stride_x, padding_y, padding_x, dilation_y, dilation_x,
        wide: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        entry = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = entry < entries
        channel, rest = entry % inner, entry // inner
        x, y = rest % width + padding_x, rest // width % height + padding_y
        plane = rest // (width * height) * rows
        total = tl.zeros([block], wide)
        for i in range(kernel_y):
            for j in range(kernel_x):
                a, b = kernel_y - 1 - i, kernel_x - 1 - j  # windows in ascending order
                down, across = y - a * dilation_y, x - b * dilation_x
                row, column = down // stride_y, across // stride_x
                hit = inside & (down >= 0) & (across >= 0) & (row < rows) & (column < columns)
                hit = hit & (row * stride_y == down) & (column * stride_x == across)
                window = ((plane + row) * columns + column) * inner + channel
                place = tl.load(places + window, mask=hit, other=0).to(tl.int32)
                hit = hit & (place == a * kernel_x + b)
                total += tl.load(gradient + window, mask=hit, other=0.0).to(wide)
        tl.store(result + entry, total.to(result.dtype.element_ty), mask=inside)


def serves(*tensors: torch.Tensor) -> bool:
    """Whether these kernels can run on tensors: on a CUDA device, with Triton, and in one of the two memory formats.

    >>> serves(torch.ones(1, 1, 2, 2))
    False
    """
    return HAS_TRITON and all(tensor.device.type == "cuda" and _in_order(tensor) for tensor in tensors)


def pooled(
    source: torch.Tensor, maxima: torch.Tensor | None, places: torch.Tensor | None, kernel: Sizes, *setting: Sizes
) -> None:
    """Write the maxima and their places in the windows, each unless it is None.

    Args:
        source: (samples, channels, height, width), contiguous or with channels last.
        maxima, places: (samples, channels, rows, columns) in the memory format of ``source``; not both None.
        kernel, setting: heights and widths of the window, then of stride, padding and dilation.
    """
    given = maxima if maxima is not None else places
    assert given is not None
    if given.numel():
        targets = [flat(given if one is None else one) for one in (maxima, places)]  # one that is None is not written
        arguments = [flat(source), *targets, given.numel(), *_geometry(source, given, kernel, *setting)]
        _pool[_grid(given)](*arguments, maxima is not None, places is not None, _wide(source), BLOCK)  # type: ignore[index]


def spread(gradient: torch.Tensor, places: torch.Tensor, result: torch.Tensor, kernel: Sizes, *setting: Sizes) -> None:
    """Write the gradient of the input: of each entry, the sum over the windows of which it is the maximum.

    Args:
        gradient, places: (samples, channels, rows, columns), in the memory format of ``result``.
        result: (samples, channels, height, width).
        kernel, setting: as for `pooled`.
    """
    if result.numel():
        tensors = flat(gradient), flat(places), flat(result)
        arguments = [*tensors, result.numel(), *_geometry(result, gradient, kernel, *setting)]
        _spread[_grid(result)](*arguments, _wide(gradient), BLOCK)  # type: ignore[index]


def _wide(tensor: torch.Tensor) -> Any:
    """The type to compare and add in, which holds every entry."""
    return tl.float64 if tensor.dtype == torch.float64 else tl.float32


def _grid(tensor: torch.Tensor) -> tuple[int]:
    return ((tensor.numel() + BLOCK - 1) // BLOCK,)


def _geometry(large: torch.Tensor, small: torch.Tensor, *pairs: Sizes) -> list[int]:
    """Entries side by side in a pixel, heights and widths before and after pooling, and the setting's pairs."""
    side_by_side = 1 if large.is_contiguous() and small.is_contiguous() else large.shape[1]
    return [side_by_side, *large.shape[-2:], *small.shape[-2:], *(size for pair in pairs for size in pair)]


def _in_order(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
