"""Convolutions: the input gradient without the input, batch chunks, other libraries and layouts.

A kernel's workspace grows with its batch, so the same convolution on a few samples at a time needs a fraction of it.
Where input and result have the same shape, each chunk's result is copied over its input, which no other chunk reads.
The weight gradient may compute its input again from the convolution before, and perhaps a ReLU, so that it never exists
as a whole: not beside the gradient, where both would be the largest tensors of the network.

Source: MONeT (Shah et al., ICLR 2021), appendix C, for the choice among algorithms.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, equal_on_cpu, picks, reordered, reordered_products
from remat_explorer.capture.implementations.chunks import chunks
from remat_explorer.capture.predicted_costs import (
    ConvolutionArguments,
    Gradients,
    Sizes,
    is_backward,
    part_of,
)

SAMPLES = (1, 2, 4, 8)  # in a chunk
WEIGHT = 10.0  # tolerance of weight gradients, relative to that of results: more is added up


def input_gradient_ways(site: Site) -> Iterator[CapturedImplementation]:
    """The input gradient without the input; on the CPU it is equal bit for bit, but for groups with channels last."""
    if part_of(site.call) != "input":
        return
    gradient = site.fake(site.args[0])
    apart = ConvolutionArguments.of(site.call).groups > 1 and not gradient.is_contiguous()
    tolerance = reordered_products(gradient) if apart else equal_on_cpu(gradient, reordered_products)
    yield _input_gradient(site, "input-gradients", "from the gradient", input_gradient, tolerance)


def chunk_ways(site: Site) -> Iterator[CapturedImplementation]:
    """A part of the batch at a time: convolution, input gradient or weight gradient."""
    for samples in SAMPLES:
        if samples >= site.fake(site.args[0]).shape[0]:
            return
        tolerance = reordered_products(site.fake(site.args[0]))
        parts = -(-site.fake(site.args[0]).shape[0] // samples)
        name = f"in chunks of {samples}"
        if part_of(site.call) == "forward":
            one = step(site.call, convolution_in_chunks, *_given(site.call), samples)
            over = step(site.call, convolution_in_chunks_in_place, *_given(site.call), samples)
            space = _bytes_of_chunk(site.fake(site.call), samples)
            yield CapturedImplementation(
                "chunks",
                name,
                site.call,
                (one,),
                tolerance,
                site.args[0],
                (over,),
                launches=2 * parts,
                workspace=space,
                portion=1 / parts,
            )
        elif part_of(site.call) == "input":
            way = _input_gradient(
                site, "chunks", name, input_gradient_in_chunks, tolerance, samples, launches=2 * parts
            )
            (result,) = site.outputs().values()
            over = replace(way.steps[0], target=input_gradient_in_chunks_in_place)
            space = _bytes_of_chunk(site.fake(result), samples)
            yield replace(way, over=site.args[0], steps_over=(over,), workspace=space, portion=1 / parts)
        elif part_of(site.call) == "weight":
            way = _weight_gradient(site, "chunks", name, weight_gradient_in_chunks, samples, launches=2 * parts)
            yield replace(way, workspace=_weight_bytes(site), portion=1 / parts)


def input_recomputed(site: Site) -> Iterator[CapturedImplementation]:
    """The weight gradient whose input, the result of a smaller convolution before, is computed again in chunks."""
    if part_of(site.call) != "weight":
        return
    gradient, source, *rest = _given(site.call)
    storage = site.scene.found.of_node[source]
    if storage.resident or source is not storage.carrier:
        return
    maker = site.scene.producer[storage]
    before, *after = maker.calls
    relus = [call for call in after if call.target is torch.ops.aten.relu.default and call in maker.in_place]
    if before.target is not torch.ops.aten.convolution.default or after != relus[:1]:
        return
    earlier, weight, bias, earlier_arguments = _given(before)
    if not site.is_kept(earlier) or 2 * site.fake(earlier).nbytes > site.fake(source).nbytes:
        return
    for samples in SAMPLES[::3]:
        parts = -(-len(site.fake(gradient)) // samples)
        if parts > 1:
            given = gradient, earlier, weight, bias, earlier_arguments, bool(after), *rest, samples
            calls = (step(site.call, weight_gradient_recomputed, *given), *picks(site))
            yield CapturedImplementation(
                "chunks",
                f"in chunks of {samples} with input recomputed",
                site.call,
                calls,
                WEIGHT * reordered_products(site.fake(gradient)),
                launches=(3 + len(after)) * parts,
                again=tuple(maker.calls),
                workspace=_bytes_of_chunk(site.fake(source), samples) + _weight_bytes(site),
                portion=1 / parts,
            )


def algorithms(site: Site) -> Iterator[CapturedImplementation]:
    """PyTorch's own kernels instead of oneDNN's, and channels last in memory; on the CPU."""
    source = site.fake(site.args[0])
    if source.device.type != "cpu":
        return
    tolerance = reordered(source)
    if part_of(site.call) == "input":
        way = _input_gradient(site, "algorithms", "native", input_gradient_native, tolerance)
        yield replace(way, workspace=_columns_bytes(site, site.args[0], site.args[2]))
    elif part_of(site.call) == "weight":
        way = _weight_gradient(site, "algorithms", "native", weight_gradient_native)
        yield replace(way, workspace=_columns_bytes(site, site.args[0], site.args[2]))
    elif part_of(site.call) == "forward":
        one = step(site.call, convolution_native, *_given(site.call))
        yield CapturedImplementation(
            "algorithms",
            "native",
            site.call,
            (one,),
            tolerance,
            workspace=_columns_bytes(site, site.call, site.args[1]),
        )
        if source.dim() == 4 and source.is_contiguous() and site.fake(site.call).is_contiguous():
            other = step(site.call, convolution_channels_last, *_given(site.call))
            copies = source.nbytes + site.fake(site.args[1]).nbytes + site.fake(site.call).nbytes
            yield CapturedImplementation(
                "algorithms", "channels last", site.call, (other,), tolerance, launches=3, workspace=copies
            )


def _given(call: Node) -> tuple[Any, ...]:
    """What the kernels of a convolution, or of its gradients, are given: what aten takes, its arguments as one."""
    first = 4 if is_backward(call) else 3
    return *call.args[:first], ConvolutionArguments.of(call), *call.args[first + 6 :]


def _weight_bytes(site: Site) -> int:
    """What a chunk's gradients of weight and bias take beside their sums."""
    return sum(site.fake(node).nbytes for node in site.outputs().values())


def _columns_bytes(site: Site, result: Any, weight: Any) -> int:
    """What PyTorch's own kernels take for the products of a window: all entries of it for each place of the result."""
    tensor, window = site.fake(result), site.fake(weight).shape[1:]
    if math.prod(window[1:]) == 1:
        return 0
    return tensor.nbytes // max(1, tensor.shape[1]) * math.prod(window)


def _input_gradient(
    site: Site, kind: str, name: str, kernel: Callable[..., Any], tolerance: float, *more: int, launches: int = 1
) -> CapturedImplementation:
    gradient, source, weight, *_ = site.args
    (result,) = site.outputs().values()
    given = gradient, weight, list(site.fake(source).shape), ConvolutionArguments.of(site.call), *more
    return CapturedImplementation(kind, name, site.call, (step(result, kernel, *given),), tolerance, launches=launches)


def _weight_gradient(
    site: Site, kind: str, name: str, kernel: Callable[..., Any], *more: int, launches: int = 1
) -> CapturedImplementation:
    steps = (step(site.call, kernel, *_given(site.call), *more), *picks(site))
    tolerance = WEIGHT * reordered_products(site.fake(site.args[0]))
    return CapturedImplementation(kind, name, site.call, steps, tolerance, launches=launches)


def _bytes_of_chunk(tensor: torch.Tensor, samples: int) -> int:
    """Bytes that the first ``samples`` entries along the batch take."""
    return tensor.nbytes // max(1, len(tensor)) * min(samples, len(tensor))


def input_gradient(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    size: Sizes,
    arguments: ConvolutionArguments,
) -> torch.Tensor:
    """The gradient of a convolution's input, which takes the input's shape but not its content.

    It is the transposed convolution of the output's gradient; for a transposed convolution, the plain one. Bit-equal,
    but for groups of channels with channels last in memory, where oneDNN takes another kernel: there it differs by
    about 2e-7 of the largest entry.
    """
    stride, padding, dilation, transposed, _, _ = arguments
    beyond = [0] * len(stride)
    if not transposed:
        for d in range(len(stride)):
            window = (weight.shape[d + 2] - 1) * dilation[d] + 1
            beyond[d] = size[d + 2] - ((gradient.shape[d + 2] - 1) * stride[d] - 2 * padding[d] + window)
    return arguments._replace(transposed=not transposed, output_padding=beyond).convolution(gradient, weight, None)


def convolution_in_chunks(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    arguments: ConvolutionArguments,
    samples: int,
) -> torch.Tensor:
    """A convolution of ``samples`` samples at a time. Relative to the largest entry it differs by at most 7e-7."""
    result = None
    for part in chunks(len(source), samples):
        chunk = arguments.convolution(source[part], weight, bias)
        if result is None:
            result = _room(chunk, len(source))
        result[part] = chunk
        del chunk
    return arguments.convolution(source, weight, bias) if result is None else result


def input_gradient_in_chunks(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    size: Sizes,
    arguments: ConvolutionArguments,
    samples: int,
) -> torch.Tensor:
    """`input_gradient` of ``samples`` samples at a time. Relative to the largest entry it differs by at most 7e-7."""
    result = None
    for part in chunks(len(gradient), samples):
        chunk = input_gradient(gradient[part], weight, size, arguments)
        if result is None:
            result = _room(chunk, len(gradient))
        result[part] = chunk
        del chunk
    if result is None:
        return input_gradient(gradient, weight, size, arguments)
    return result


def weight_gradient_in_chunks(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sizes | None,
    arguments: ConvolutionArguments,
    mask: Sequence[bool],
    samples: int,
) -> Gradients:
    """Gradients of weight and bias, summed over ``samples`` samples at a time, as `convolution_backward` gives them.

    Relative to the largest entry they differ by about 1e-5 in float32: sums come in another order. ``mask`` asks for no
    input gradient.
    """
    totals: Gradients | None = None
    for part in chunks(len(gradient), samples):
        totals = added(totals, arguments.backward(gradient[part], source[part], weight, bias_sizes, mask))
    return arguments.backward(gradient, source, weight, bias_sizes, mask) if totals is None else totals


def added(totals: Gradients | None, gradients: Gradients) -> Gradients:
    """The gradients of one more part of the batch, added to those of the parts before in place."""
    if totals is None:
        return gradients
    for total, more in zip(totals, gradients, strict=True):
        if total is not None and more is not None:
            total.add_(more)
    return totals


def convolution_channels_last(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    arguments: ConvolutionArguments,
) -> torch.Tensor:
    """A two-dimensional convolution with channels last in memory, and back. It differs by at most 7e-7."""
    last = torch.channels_last
    source, weight = source.contiguous(memory_format=last), weight.contiguous(memory_format=last)
    result = arguments.convolution(source, weight, bias)
    del source, weight
    return result.contiguous()


def convolution_native(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    arguments: ConvolutionArguments,
) -> torch.Tensor:
    """A convolution by PyTorch's own kernels instead of oneDNN's. It differs by at most 7e-7."""
    with _without_onednn():
        return arguments.convolution(source, weight, bias)


def input_gradient_native(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    size: Sizes,
    arguments: ConvolutionArguments,
) -> torch.Tensor:
    """`input_gradient` by PyTorch's own kernels. It differs by at most 7e-7."""
    with _without_onednn():
        return input_gradient(gradient, weight, size, arguments)


def weight_gradient_native(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sizes | None,
    arguments: ConvolutionArguments,
    mask: Sequence[bool],
) -> Gradients:
    """Gradients of weight and bias by PyTorch's own kernels. They differ by about 1e-5."""
    with _without_onednn():
        return arguments.backward(gradient, source, weight, bias_sizes, mask)


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    before = torch.backends.mkldnn.set_flags(False)[0]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before)


def _room(part: torch.Tensor, samples: int) -> torch.Tensor:
    """A tensor for the results of all samples, with the memory format of those of a part."""
    last = torch.channels_last if part.dim() == 4 else torch.channels_last_3d if part.dim() == 5 else None
    shape = (samples, *part.shape[1:])
    if last is not None and part.is_contiguous(memory_format=last) and not part.is_contiguous():
        return torch.empty(shape, dtype=part.dtype, device=part.device, memory_format=last)
    return part.new_empty(shape)


def convolution_in_chunks_in_place(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    arguments: ConvolutionArguments,
    samples: int,
) -> torch.Tensor:
    """`convolution_in_chunks` over its input, which must have the shape of the result."""
    for part in chunks(len(source), samples):
        source[part] = arguments.convolution(source[part], weight, bias)
    return source


def input_gradient_in_chunks_in_place(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    size: Sizes,
    arguments: ConvolutionArguments,
    samples: int,
) -> torch.Tensor:
    """`input_gradient_in_chunks` over the gradient of the output, which must have the shape of the input."""
    for part in chunks(len(gradient), samples):
        gradient[part] = input_gradient(gradient[part], weight, size, arguments)
    return gradient


def weight_gradient_recomputed(
    gradient: torch.Tensor,
    earlier: torch.Tensor,
    earlier_weight: torch.Tensor,
    earlier_bias: torch.Tensor | None,
    earlier_arguments: ConvolutionArguments,
    activated: bool,
    weight: torch.Tensor,
    bias_sizes: Sizes | None,
    arguments: ConvolutionArguments,
    mask: Sequence[bool],
    samples: int,
) -> Gradients:
    """Gradients of weight and bias as `weight_gradient_in_chunks` gives them, from the input of the layer before.

    ``activated`` if a ReLU follows the convolution before.
    """
    totals: Gradients | None = None
    for part in chunks(len(gradient), samples):
        source = earlier_arguments.convolution(earlier[part], earlier_weight, earlier_bias)
        if activated:
            torch.ops.aten.relu_.default(source)
        totals = added(totals, arguments.backward(gradient[part], source, weight, bias_sizes, mask))
        del source
    if totals is None:  # no sample
        of_bias = weight.new_zeros(bias_sizes) if mask[2] and bias_sizes is not None else None
        return None, torch.zeros_like(weight) if mask[1] else None, of_bias
    return totals
