"""Layer normalization whose backward pass reads the output instead of the input.

With x^ = (y - b) / w, the backward kernel of PyTorch is called as if x^ were the input, with mean 0 and deviation 1;
what it gives for the input is then divided by the true deviation. Source: as for `batch_norm`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from remat_explorer.capture.alternatives.kernels.batch_norm import Gradients, require_invertible
from remat_explorer.capture.alternatives.kernels.flat import CHUNK, chunks

aten = torch.ops.aten


def layer_norm_gradient_from_output(
    gradient: torch.Tensor,
    output: torch.Tensor,
    normalized: Sequence[int],
    weight: torch.Tensor,
    bias: torch.Tensor,
    deviation: torch.Tensor,
) -> Gradients:
    """Gradients of input, weight and bias, a few rows at a time.

    Relative to the largest entry they differ by about 4e-7 in float32 where |b / w| is small.

    Args:
        gradient, output: contiguous, (..., *normalized).
        normalized: the last dimensions, over which statistics are taken.
        weight, bias: w and b, of shape ``normalized``.
        deviation: 1 / std of each row.

    Raises:
        ExecutionError: if a weight is 0 or some |b / w| is above `LARGEST_RATIO`.
    """
    require_invertible(weight, bias)
    width = weight.numel()
    g, y, rows = gradient.reshape(-1, width), output.reshape(-1, width), deviation.reshape(-1, 1)
    w, b = weight.flatten(), bias.flatten()
    result = torch.empty_like(gradient)
    target = result.view(-1, width)
    weight_sum = torch.zeros(width, dtype=torch.float64, device=weight.device)
    bias_sum = torch.zeros_like(weight_sum)
    for part in chunks(len(g), max(1, CHUNK // width)):
        inner = y[part].sub(b).div_(w)
        mean = torch.zeros_like(rows[part])
        inner_gradient, dw, db = aten.native_layer_norm_backward.default(
            g[part], inner, [width], mean, torch.ones_like(mean), w, b, [True, True, True]
        )
        torch.mul(inner_gradient, rows[part], out=target[part])
        weight_sum += dw
        bias_sum += db
        del inner, inner_gradient
    return result, weight_sum.to(weight.dtype).view(*normalized), bias_sum.to(bias.dtype).view(*normalized)
