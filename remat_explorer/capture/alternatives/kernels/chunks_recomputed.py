"""The weight gradient of a convolution whose input is computed again, a part of the batch at a time.

The input comes from another convolution, and perhaps a ReLU. So it never exists as a whole: not beside the
gradient, where both would be the largest tensors of the network.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from remat_explorer.capture.alternatives.kernels.convolution import added
from remat_explorer.capture.alternatives.kernels.flat import chunks
from remat_explorer.capture.convolution_arguments import ConvolutionArguments, Gradients, Sizes


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

    Args:
        gradient: of the output.
        earlier: input of the convolution before.
        earlier_weight, earlier_bias, earlier_arguments: of the convolution before.
        activated: whether a ReLU follows the convolution before.
        weight, bias_sizes, arguments: of the convolution.
        mask: of `convolution_backward`; no input gradient.
        samples: of a chunk.
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
