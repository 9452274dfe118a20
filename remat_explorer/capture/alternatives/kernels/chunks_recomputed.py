"""The weight gradient of a convolution whose input is computed again, a part of the batch at a time.

The input comes from another convolution, and perhaps a ReLU. So it never exists as a whole: not beside the
gradient, where both would be the largest tensors of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from remat_explorer.capture.alternatives.kernels.flat import chunks

aten = torch.ops.aten
Sizes = Sequence[int]


def weight_gradient_recomputed(
    gradient: torch.Tensor,
    earlier: torch.Tensor,
    earlier_weight: torch.Tensor,
    earlier_bias: torch.Tensor | None,
    earlier_setting: Sequence[Any],
    activated: bool,
    weight: torch.Tensor,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    mask: Sequence[bool],
    samples: int,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of weight and bias as `weight_gradient_in_chunks` gives them, from the input of the layer before.

    Args:
        gradient: of the output.
        earlier: input of the convolution before.
        earlier_weight, earlier_bias, earlier_setting: of the convolution before: stride, padding, dilation,
            transposed, output padding and groups.
        activated: whether a ReLU follows the convolution before.
        weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups: of the convolution.
        mask: of `convolution_backward`; no input gradient.
        samples: of a chunk.
    """
    arguments = weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, list(mask)
    totals: list[torch.Tensor | None] | None = None
    for part in chunks(len(gradient), samples):
        source = aten.convolution.default(earlier[part], earlier_weight, earlier_bias, *earlier_setting)
        if activated:
            aten.relu_.default(source)
        found = aten.convolution_backward.default(gradient[part], source, *arguments)
        del source
        if totals is None:
            totals = list(found)
        else:
            for total, more in zip(totals, found, strict=True):
                if total is not None:
                    total.add_(more)
        del found
    if totals is None:  # no sample
        totals = [torch.zeros_like(weight) if mask[1] else None]
        totals += [weight.new_zeros(bias_sizes) if mask[2] and bias_sizes is not None else None]
        return None, totals[0], totals[1]
    return totals[0], totals[1], totals[2]
