"""Convolutions of a part of the batch at a time that write each part's result over what it was computed from.

Where input and result have the same shape, a whole tensor need not exist beside another one: a part's result is
there before it is copied over its input, and no other part reads that.
"""

from __future__ import annotations

import torch

from remat_explorer.capture.alternatives.kernels.convolution import input_gradient
from remat_explorer.capture.alternatives.kernels.flat import chunks
from remat_explorer.capture.convolution_arguments import ConvolutionArguments, Sizes


def convolution_in_chunks_in_place(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    arguments: ConvolutionArguments,
    samples: int,
) -> torch.Tensor:
    """`convolution_in_chunks` over its input, which must have the shape of the result.

    >>> x = torch.ones(2, 1, 3)
    >>> pointwise = ConvolutionArguments([1], [0], [1], False, [0], 1)
    >>> y = convolution_in_chunks_in_place(x, torch.ones(1, 1, 1), torch.ones(1), pointwise, samples=1)
    >>> y is x, x[1].tolist()
    (True, [[2.0, 2.0, 2.0]])
    """
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
