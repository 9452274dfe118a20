"""Max pooling whose backward pass needs one byte an output, or nothing but the input.

PyTorch keeps the index of each maximum in its input plane, 8 bytes. Its place within the window is enough: one byte
for windows of at most 256 entries. It is made with the maxima, or apart from them and later: an optional operation
makes it from PyTorch's indices or from the input, whichever is kept. A few samples are taken at a time, so 8-byte
indices exist for those only.

On CUDA, Triton kernels make the same bit for bit, without indices, where Triton is installed. A tensor is walked in the
order of its storage: of contiguous ones, entries of a row lie side by side; of those with channels last, the channels.

Source: MONeT (Shah et al., ICLR 2021), appendix C: intermediate-activated.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, equal_on_cpu, picked
from remat_explorer.capture.implementations.chunks import flat, samples
from remat_explorer.capture.implementations.masks import HAS_TRITON

aten = torch.ops.aten
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


LARGEST_WINDOW = 256  # entries that one byte can tell apart


def forward(site: Site) -> Iterator[CapturedImplementation]:
    """Maxima with places in windows, and maxima alone."""
    setting = _setting(site.args)
    maxima, index = site.outputs().get(0), site.outputs().get(1)
    if maxima is None or index is None or site.fake(maxima).dim() != 4:
        return
    source, parts = site.args[0], len(list(samples(site.fake(site.args[0]))))
    places = _places(site, site.call)
    if places is not None:
        steps = (
            step(site.call, max_pool_with_places, source, *setting),
            step(maxima, operator.getitem, site.call, 0),
            step(places, operator.getitem, site.call, 1),
        )
        yield CapturedImplementation("pooling", "with places", site.call, steps, launches=8 * parts, gpu_launches=1)
    alone = step(maxima, max_pool_alone, source, *setting)
    yield CapturedImplementation("pooling", "maxima alone", site.call, (alone,), launches=2 * parts, gpu_launches=1)


def backward(site: Site) -> Iterator[CapturedImplementation]:
    """The gradient from indices without the input, from places of either making, or from the input without indices."""
    gradient, source, *rest, index = site.args
    setting = _setting((source, *rest))
    size, parts = list(site.fake(source).shape), len(list(samples(site.fake(source))))
    if len(size) != 4 or not _same_format(site, gradient, source):
        return
    kernel, stride = setting[:2]
    apart = all(width <= distance for width, distance in zip(kernel, stride, strict=True))
    tolerance = 0.0 if apart else equal_on_cpu(site.fake(gradient))  # windows that overlap are added up
    indexed = step(site.call, max_pool_gradient_from_indices, gradient, index, size, *setting)
    yield CapturedImplementation("pooling", "from indices", site.call, (indexed,), tolerance)
    pool = index.args[0]
    places = _places(site, pool) if index.target is operator.getitem and pool in site.scene.caller else None
    if places is not None:
        for name, made in (("from places", places), ("from places apart", _places_apart(site, index, source))):
            placed = step(site.call, max_pool_gradient_from_places, gradient, made, size, *setting)
            yield CapturedImplementation(
                "pooling", name, site.call, (placed,), tolerance, launches=8 * parts, gpu_launches=1
            )
    if site.is_kept(source):
        again = step(site.call, max_pool_gradient_recomputed, gradient, source, *setting)
        room = site.fake(gradient).numel()  # places on a GPU; elsewhere, indices of a few samples
        yield CapturedImplementation(
            *("pooling", "indices recomputed", site.call, (again,), tolerance),
            launches=2 * parts,
            gpu_launches=2 if math.prod(kernel) <= LARGEST_WINDOW else 0,
            workspace=room,
        )


def _places(site: Site, pool: Node) -> Node | None:
    """The node of the places of a pooling, made once; None for windows too large for one byte."""
    kernel = _setting(pool.args)[0]
    index = picked(pool, 1)
    if index is None or math.prod(kernel) > LARGEST_WINDOW:
        return None
    scene = site.scene
    if ("places", pool) not in scene.made:
        fake = torch.empty_like(scene.fake(index), dtype=torch.uint8)
        scene.made["places", pool] = scene.add_value(index, operator.getitem, (pool, 1), fake, "places")
    return scene.made["places", pool]


def _places_apart(site: Site, index: Node, source: Node) -> Node:
    """The node of the places of a pooling that an optional operation makes, from the indices or from the input."""
    scene, pool = site.scene, index.args[0]
    if ("places apart", pool) not in scene.made:
        setting, fake = _setting(pool.args), torch.empty_like(scene.fake(index), dtype=torch.uint8)  # type: ignore[union-attr]
        arguments = index, list(site.fake(source).shape), *setting
        apart = scene.add_value(index, packed_places, arguments, fake, "places")
        draft = scene.add_optional(apart, (index,))
        if site.is_kept(source):
            parts = len(list(samples(site.fake(source))))
            again = step(apart, max_pool_places, source, *setting)
            draft.ways.append(
                CapturedImplementation("pooling", "from the input", apart, (again,), launches=8 * parts, gpu_launches=1)
            )
        scene.optional.append((scene.producer[scene.found.of_node[index]], draft))
        scene.made["places apart", pool] = apart
    return scene.made["places apart", pool]


def _setting(arguments: tuple[Any, ...]) -> tuple[list[int], list[int], list[int], list[int], bool]:
    """Kernel, stride, padding and dilation of height and width, and whether sizes are rounded up."""
    given: Any = (*arguments[1:6], *([], [0, 0], [1, 1], False)[len(arguments) - 2 :])
    kernel, stride, padding, dilation, ceil = given
    return _pair(kernel), _pair(stride or kernel), _pair(padding), _pair(dilation), bool(ceil)


def _pair(sizes: list[int]) -> list[int]:
    return [*sizes, *sizes][:2]


def _same_format(site: Site, gradient: Node, source: Node) -> bool:
    """Whether gradient and input are both contiguous, or both have channels last."""
    g, x = site.fake(gradient), site.fake(source)
    return any(
        g.is_contiguous(memory_format=form) and x.is_contiguous(memory_format=form)
        for form in (torch.contiguous_format, torch.channels_last)
    )


def runs_in_triton(*tensors: torch.Tensor) -> bool:
    """Whether these kernels can run on tensors: on a CUDA device, with Triton, and in one of the two memory formats."""
    return HAS_TRITON and all(tensor.device.type == "cuda" and _in_order(tensor) for tensor in tensors)


def _pool_by_triton(
    source: torch.Tensor, maxima: torch.Tensor | None, places: torch.Tensor | None, kernel: Sizes, *setting: Sizes
) -> None:
    """Write the maxima and their places in the windows, each unless it is None.

    Both have the memory format of ``source``, contiguous or channels last. ``kernel`` is height and width of the
    window, ``setting`` those of stride, padding and dilation.
    """
    given = maxima if maxima is not None else places
    assert given is not None
    if given.numel():
        targets = [flat(given if one is None else one) for one in (maxima, places)]  # one that is None is not written
        arguments = [flat(source), *targets, given.numel(), *_geometry(source, given, kernel, *setting)]
        _pool[_grid(given)](*arguments, maxima is not None, places is not None, _wide(source), BLOCK)  # type: ignore[index]


def _spread_by_triton(
    gradient: torch.Tensor, places: torch.Tensor, result: torch.Tensor, kernel: Sizes, *setting: Sizes
) -> None:
    """Write the gradient of the input: of each entry, the sum over the windows of which it is the maximum.

    All tensors have the memory format of ``result``.
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


def max_pool_with_places(
    source: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The maxima, and the place of each one in its window: row * window width + column, uint8. Bit-equal.

    >>> maxima, places = max_pool_with_places(torch.tensor([[[[1.0, 2.0], [4.0, 3.0]]]]), [2, 2], [2, 2], [0, 0],
    ...                                       [1, 1], False)
    >>> maxima.tolist(), places.tolist()
    ([[[[4.0]]]], [[[[2]]]])
    """
    if runs_in_triton(source):
        maxima = _room_for(source, kernel, stride, padding, dilation, ceil_mode, source.dtype)
        places = torch.empty_like(maxima, dtype=torch.uint8)
        _pool_by_triton(source, maxima, places, kernel, stride, padding, dilation)
        return maxima, places
    maxima = places = None
    for part in samples(source):
        pooled, index = aten.max_pool2d_with_indices.default(source[part], kernel, stride, padding, dilation, ceil_mode)
        if maxima is None or places is None:
            maxima = _room_like(source, pooled, source.dtype)
            places = _room_like(source, pooled, torch.uint8)
        maxima[part] = pooled
        _write_places(index, places[part], kernel, stride, padding, dilation, source.shape[-1])
    if maxima is None or places is None:  # no samples
        maxima, index = aten.max_pool2d_with_indices.default(source, kernel, stride, padding, dilation, ceil_mode)
        places = index.to(torch.uint8)
    return maxima, places


def max_pool_alone(
    source: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> torch.Tensor:
    """The maxima without their indices. Bit-equal."""
    if runs_in_triton(source):
        maxima = _room_for(source, kernel, stride, padding, dilation, ceil_mode, source.dtype)
        _pool_by_triton(source, maxima, None, kernel, stride, padding, dilation)
        return maxima
    maxima = None
    for part in samples(source):
        pooled = aten.max_pool2d_with_indices.default(source[part], kernel, stride, padding, dilation, ceil_mode)
        if maxima is None:
            maxima = _room_like(source, pooled[0], source.dtype)
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
    """PyTorch's own backward kernel without the input, of which it needs but the shape, ``size``. Bit-equal.

    Gradient and index have the memory format of the input.
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
    """The gradient of the input, of shape ``size``, from the places in the windows. Bit-equal."""
    result = _gradient_like(gradient, size)
    if runs_in_triton(gradient, places, result):
        _spread_by_triton(gradient, places, result, kernel, stride, padding, dilation)
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
    """The gradient of the input with the indices, or on CUDA the places, found once more. Bit-equal."""
    if runs_in_triton(gradient, source) and math.prod(kernel) <= LARGEST_WINDOW:
        places = _room_for(source, kernel, stride, padding, dilation, ceil_mode, torch.uint8)
        _pool_by_triton(source, None, places, kernel, stride, padding, dilation)
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


def _room_for(
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
    return _room_like(source, pooled, dtype)


def _format(tensor: torch.Tensor) -> torch.memory_format:
    last = torch.channels_last
    return last if tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous() else torch.contiguous_format


def _room_like(source: torch.Tensor, sample: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
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


def _write_places(
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
    """The index of each maximum in its plane, int64: what `_write_places` was made from."""
    down, across = _corners(places, stride, padding)
    column = places.to(torch.int64)
    row = column.div(kernel[1], rounding_mode="floor")
    column.sub_(row, alpha=kernel[1]).mul_(dilation[1]).add_(across)
    return column.add_(row.mul_(dilation[0]).add_(down), alpha=width)


def packed_places(
    index: torch.Tensor, size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> torch.Tensor:
    """The place of each maximum in its window from PyTorch's index of 8 bytes, a few samples at a time: uint8."""
    places = torch.empty_like(index, dtype=torch.uint8)
    for part in samples(index):
        _write_places(index[part].clone(), places[part], kernel, stride, padding, dilation, size[-1])
    return places


def max_pool_places(
    source: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> torch.Tensor:
    """The place of each maximum in its window, uint8, from the input, without the maxima."""
    if runs_in_triton(source):
        places = _room_for(source, kernel, stride, padding, dilation, ceil_mode, torch.uint8)
        _pool_by_triton(source, None, places, kernel, stride, padding, dilation)
        return places
    places = None
    for part in samples(source):
        index = aten.max_pool2d_with_indices.default(source[part], kernel, stride, padding, dilation, ceil_mode)[1]
        if places is None:
            places = _room_like(source, index, torch.uint8)
        _write_places(index, places[part], kernel, stride, padding, dilation, source.shape[-1])
        del index
    if places is None:  # no samples
        index = aten.max_pool2d_with_indices.default(source, kernel, stride, padding, dilation, ceil_mode)[1]
        places = index.to(torch.uint8)
    return places
