"""Convolutions in batch chunks, in another layout or by another library, and the input gradient from the gradient.

A kernel's workspace grows with its batch, so the same convolution on a few samples at a time needs a fraction of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from remat_explorer.capture.alternatives.kernels.flat import chunks
from remat_explorer.capture.convolution_arguments import ConvolutionArguments, Gradients, Sizes


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

    Args:
        gradient: of the output, (samples, channels, ...).
        weight: of the convolution.
        size: shape of the input.
        arguments: of the convolution.

    >>> plain = ConvolutionArguments([1], [0], [1], False, [0], 1)
    >>> input_gradient(torch.ones(1, 1, 2), torch.ones(1, 1, 2), [1, 1, 3], plain).tolist()
    [[[1.0, 2.0, 1.0]]]
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

    Relative to the largest entry they differ by about 1e-5 in float32: sums come in another order.

    Args:
        gradient: of the output.
        source, weight, bias_sizes, arguments: of the convolution.
        mask: of `convolution_backward`; no input gradient.
        samples: of a chunk.
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
