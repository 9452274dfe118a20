"""Convolutions: the input gradient without the input, batch chunks, other libraries and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from remat_explorer.capture.alternatives.kernels import convolution as kernels
from remat_explorer.capture.alternatives.site import Site, picks
from remat_explorer.capture.alternatives.ways import Way, step

SAMPLES = (1, 2, 4, 8)  # in a chunk
RESULT, WEIGHT = 3e-6, 3e-5  # tolerances in float32, of results and input gradients, and of weight gradients


def input_gradient(site: Site) -> Iterator[Way]:
    """The input gradient without the input, where it is equal bit for bit."""
    if _part(site) == "input" and not (site.args[9] > 1 and not site.fake(site.args[0]).is_contiguous()):
        yield _input_gradient(site, "input-gradients", "from the gradient", kernels.input_gradient, 0.0)


def chunks(site: Site) -> Iterator[Way]:
    """A part of the batch at a time: convolution, input gradient or weight gradient."""
    for samples in SAMPLES:
        if samples >= site.fake(site.args[0]).shape[0]:
            return
        parts = -(-site.fake(site.args[0]).shape[0] // samples)
        name = f"in chunks of {samples}"
        if _part(site) == "forward":
            one = step(site.call, kernels.convolution_in_chunks, *site.args, samples)
            yield Way("chunks", name, site.call, (one,), RESULT, launches=2 * parts)
        elif _part(site) == "input":
            yield _input_gradient(
                site, "chunks", name, kernels.input_gradient_in_chunks, RESULT, samples, launches=2 * parts
            )
        elif _part(site) == "weight":
            yield _weight_gradient(site, "chunks", name, kernels.weight_gradient_in_chunks, samples, launches=2 * parts)


def algorithms(site: Site) -> Iterator[Way]:
    """PyTorch's own kernels instead of oneDNN's, and channels last in memory; on the CPU."""
    source = site.fake(site.args[0])
    if source.device.type != "cpu":
        return
    if _part(site) == "input":
        yield _input_gradient(site, "algorithms", "native", kernels.input_gradient_native, RESULT)
    elif _part(site) == "weight":
        yield _weight_gradient(site, "algorithms", "native", kernels.weight_gradient_native)
    elif _part(site) == "forward":
        one = step(site.call, kernels.convolution_native, *site.args)
        yield Way("algorithms", "native", site.call, (one,), RESULT)
        if source.dim() == 4 and source.is_contiguous() and site.fake(site.call).is_contiguous():
            other = step(site.call, kernels.convolution_channels_last, *site.args)
            yield Way("algorithms", "channels last", site.call, (other,), RESULT, launches=3)


def _part(site: Site) -> str:
    """Which part of a convolution a call is: "forward", "input", "weight", or "" where two gradients come in one."""
    if site.call.target is torch.ops.aten.convolution.default:
        return "forward"
    to_input, to_weight, to_bias = site.args[10]
    if to_input and not (to_weight or to_bias):
        return "input"
    return "" if to_input else "weight"


def _input_gradient(
    site: Site, kind: str, name: str, kernel: Callable[..., Any], tolerance: float, *more: int, launches: int = 1
) -> Way:
    gradient, source, weight, _, stride, padding, dilation, transposed, _, groups, _ = site.args
    (result,) = site.outputs().values()
    size = list(site.fake(source).shape)
    arguments = gradient, weight, size, stride, padding, dilation, transposed, groups, *more
    return Way(kind, name, site.call, (step(result, kernel, *arguments),), tolerance, launches=launches)


def _weight_gradient(
    site: Site, kind: str, name: str, kernel: Callable[..., Any], *more: int, launches: int = 1
) -> Way:
    steps = (step(site.call, kernel, *site.args, *more), *picks(site))
    return Way(kind, name, site.call, steps, WEIGHT, launches=launches)
