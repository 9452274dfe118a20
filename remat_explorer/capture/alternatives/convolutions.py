"""Convolutions: the input gradient without the input, batch chunks, other libraries and layouts.

Source: MONeT (Shah et al., ICLR 2021), appendix C, for the choice among algorithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.exactness import equal_on_cpu, reordered, reordered_products
from remat_explorer.capture.alternatives.kernels import chunks_in_place, chunks_recomputed
from remat_explorer.capture.alternatives.kernels import convolution as kernels
from remat_explorer.capture.alternatives.site import Site, picks
from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.convolution_arguments import (
    ConvolutionArguments,
    is_backward,
    part_of,
)

SAMPLES = (1, 2, 4, 8)  # in a chunk
WEIGHT = 10.0  # tolerance of weight gradients, relative to that of results: more is added up


def input_gradient(site: Site) -> Iterator[CapturedImplementation]:
    """The input gradient without the input; on the CPU it is equal bit for bit, but for groups with channels last."""
    if part_of(site.call) != "input":
        return
    gradient = site.fake(site.args[0])
    apart = ConvolutionArguments.of(site.call).groups > 1 and not gradient.is_contiguous()
    tolerance = reordered_products(gradient) if apart else equal_on_cpu(gradient, reordered_products)
    yield _input_gradient(site, "input-gradients", "from the gradient", kernels.input_gradient, tolerance)


def chunks(site: Site) -> Iterator[CapturedImplementation]:
    """A part of the batch at a time: convolution, input gradient or weight gradient."""
    for samples in SAMPLES:
        if samples >= site.fake(site.args[0]).shape[0]:
            return
        tolerance = reordered_products(site.fake(site.args[0]))
        parts = -(-site.fake(site.args[0]).shape[0] // samples)
        name = f"in chunks of {samples}"
        if part_of(site.call) == "forward":
            one = step(site.call, kernels.convolution_in_chunks, *_given(site.call), samples)
            over = step(site.call, chunks_in_place.convolution_in_chunks_in_place, *_given(site.call), samples)
            space = bytes_of_chunk(site.fake(site.call), samples)
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
                site, "chunks", name, kernels.input_gradient_in_chunks, tolerance, samples, launches=2 * parts
            )
            (result,) = site.outputs().values()
            over = replace(way.steps[0], target=chunks_in_place.input_gradient_in_chunks_in_place)
            space = bytes_of_chunk(site.fake(result), samples)
            yield replace(way, over=site.args[0], steps_over=(over,), workspace=space, portion=1 / parts)
        elif part_of(site.call) == "weight":
            way = _weight_gradient(site, "chunks", name, kernels.weight_gradient_in_chunks, samples, launches=2 * parts)
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
            calls = (step(site.call, chunks_recomputed.weight_gradient_recomputed, *given), *picks(site))
            yield CapturedImplementation(
                "chunks",
                f"in chunks of {samples} with input recomputed",
                site.call,
                calls,
                WEIGHT * reordered_products(site.fake(gradient)),
                launches=(3 + len(after)) * parts,
                again=tuple(maker.calls),
                workspace=bytes_of_chunk(site.fake(source), samples) + _weight_bytes(site),
                portion=1 / parts,
            )


def algorithms(site: Site) -> Iterator[CapturedImplementation]:
    """PyTorch's own kernels instead of oneDNN's, and channels last in memory; on the CPU."""
    source = site.fake(site.args[0])
    if source.device.type != "cpu":
        return
    tolerance = reordered(source)
    if part_of(site.call) == "input":
        way = _input_gradient(site, "algorithms", "native", kernels.input_gradient_native, tolerance)
        yield replace(way, workspace=_columns_bytes(site, site.args[0], site.args[2]))
    elif part_of(site.call) == "weight":
        way = _weight_gradient(site, "algorithms", "native", kernels.weight_gradient_native)
        yield replace(way, workspace=_columns_bytes(site, site.args[0], site.args[2]))
    elif part_of(site.call) == "forward":
        one = step(site.call, kernels.convolution_native, *_given(site.call))
        yield CapturedImplementation(
            "algorithms",
            "native",
            site.call,
            (one,),
            tolerance,
            workspace=_columns_bytes(site, site.call, site.args[1]),
        )
        if source.dim() == 4 and source.is_contiguous() and site.fake(site.call).is_contiguous():
            other = step(site.call, kernels.convolution_channels_last, *_given(site.call))
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


def bytes_of_chunk(tensor: torch.Tensor, samples: int) -> int:
    """Bytes that the first ``samples`` entries along the batch take.

    >>> bytes_of_chunk(torch.ones(10, 3), 2)
    24
    """
    return tensor.nbytes // max(1, len(tensor)) * min(samples, len(tensor))
