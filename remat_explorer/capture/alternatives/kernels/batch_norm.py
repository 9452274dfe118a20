"""Batch normalization in training: backward without a temporary, or from the output; forward with known statistics.

With x^ = (x - mean) / std, y = w x^ + b and n entries a channel, the gradients are

    db = sum g,   dw = sum g x^,   dx = w / std (g - db / n - x^ dw / n).

From the output, x^ = (y - b) / w: "output-activated" in MONeT (Shah et al., ICLR 2021, appendix C) and In-Place
Activated BatchNorm (Rota Bulo et al., CVPR 2018). What y lost by rounding comes back multiplied by |b / w|.
"""

from __future__ import annotations

import torch

from remat_explorer.capture.alternatives.kernels.flat import samples
from remat_explorer.errors import ExecutionError

aten = torch.ops.aten
LARGEST_RATIO = 100.0  # of |b / w|; gradients are then right to about 2e-6 of their largest entry in float32
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def batch_norm_with_statistics(
    source: torch.Tensor,
    mean: torch.Tensor,
    deviation: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> torch.Tensor:
    """The result of a training step's batch normalization once more, with its statistics instead of new ones.

    Bit-equal on the CPU: the evaluation kernel with variance 1 and weight w / std computes what the training kernel
    does, in the same order.

    Args:
        source: (samples, channels, ...).
        mean, deviation: mean and 1 / std of each channel, as the first run saved them.
        weight, bias: of each channel, or None.
    """
    if source.device.type == "cuda":
        return aten.batch_norm_elemt.default(source, weight, bias, mean, deviation, 0.0)
    factor = deviation if weight is None else deviation * weight
    return aten.native_batch_norm.default(source, factor, bias, mean, torch.ones_like(mean), False, 0.0, 0.0)[0]


def batch_norm_gradient_lean(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    deviation: torch.Tensor,
) -> Gradients:
    """Gradients of input, weight and bias with a temporary of a few samples; PyTorch's takes a whole tensor.

    Relative to the largest entry they differ by about 4e-7 in float32, from another order of sums.

    Args:
        gradient, source: (samples, channels, ...).
        weight: of each channel, or None.
        mean, deviation: mean and 1 / std of each channel.
    """
    return _lean(gradient, source, weight, mean, deviation, torch.empty_like(gradient))


def batch_norm_gradient_lean_in_place(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    deviation: torch.Tensor,
) -> Gradients:
    """As `batch_norm_gradient_lean`, with the gradient of the input over ``gradient``."""
    return _lean(gradient, source, weight, mean, deviation, gradient)


def batch_norm_gradient_from_output(
    gradient: torch.Tensor, output: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, deviation: torch.Tensor
) -> Gradients:
    """Gradients of input, weight and bias from the output: PyTorch's kernel, told that y is an input with mean b.

    In float32 they differ by about 1e-7 of the largest entry where |b / w| is small, by 2e-6 where it is 100.

    Args:
        gradient, output: (samples, channels, ...).
        weight, bias, deviation: w, b and 1 / std of each channel.

    Raises:
        ExecutionError: if a weight is 0 or some |b / w| is above `LARGEST_RATIO`.
    """
    require_invertible(weight, bias)
    scale = weight * weight * deviation
    return aten.native_batch_norm_backward.default(
        gradient, output, scale, None, None, bias, weight.reciprocal(), True, 0.0, [True, True, True]
    )


def batch_norm_gradient_from_output_lean(
    gradient: torch.Tensor, output: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, deviation: torch.Tensor
) -> Gradients:
    """As `batch_norm_gradient_from_output`, with the small temporary of `batch_norm_gradient_lean`."""
    require_invertible(weight, bias)
    scale = weight * weight * deviation
    return _lean(gradient, output, scale, bias, weight.reciprocal(), torch.empty_like(gradient))


def batch_norm_gradient_from_output_lean_in_place(
    gradient: torch.Tensor, output: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, deviation: torch.Tensor
) -> Gradients:
    """As `batch_norm_gradient_from_output_lean`, with the gradient of the input over ``gradient``."""
    require_invertible(weight, bias)
    scale = weight * weight * deviation
    return _lean(gradient, output, scale, bias, weight.reciprocal(), gradient)


def is_invertible(weight: torch.Tensor, bias: torch.Tensor) -> bool:
    """Whether the input can be found from the output: no weight is 0, and no |b / w| above `LARGEST_RATIO`.

    >>> is_invertible(torch.ones(2), torch.zeros(2)), is_invertible(torch.tensor([1.0, 0.0]), torch.ones(2))
    (True, False)
    """
    return bool((bias.abs() <= LARGEST_RATIO * weight.abs()).logical_and_(weight != 0).all())


def require_invertible(weight: torch.Tensor, bias: torch.Tensor) -> None:
    """Refuse weights from whose output the input cannot be found.

    Raises:
        ExecutionError: with the channel.
    """
    if not is_invertible(weight, bias):
        worst = int((bias / weight).abs().nan_to_num(torch.inf).flatten().argmax())
        w, b = weight.flatten()[worst].item(), bias.flatten()[worst].item()
        raise ExecutionError(
            f"channel {worst} of a normalization has weight {w:g} and bias {b:g}: its input cannot be found from its "
            f"output accurately, which takes |bias / weight| <= {LARGEST_RATIO:g}; capture the model again, without "
            'the kind "output-activated"'
        )


def _lean(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    deviation: torch.Tensor,
    out: torch.Tensor,
) -> Gradients:
    """The equations above, a few samples at a time; ``out`` may be ``gradient``."""
    shape = (1, -1, *[1] * (source.dim() - 2))
    dims = [d for d in range(source.dim()) if d != 1]
    center = mean.view(shape)
    bias_sum = torch.zeros(mean.shape, dtype=torch.float64, device=mean.device)
    weight_sum = torch.zeros_like(bias_sum)
    for part in samples(source):
        centered = source[part] - center
        weight_sum += centered.mul_(gradient[part]).sum(dims)
        bias_sum += gradient[part].sum(dims)
        del centered
    count = source.numel() // max(1, len(mean))
    scale = deviation.double() if weight is None else deviation.double() * weight
    slope = (-scale * deviation.double().square() * weight_sum / count).to(source.dtype).view(shape)
    offset = (-scale * bias_sum / count).to(source.dtype).view(shape)
    factor = scale.to(source.dtype).view(shape)
    for part in samples(source):
        centered = (source[part] - center).mul_(slope).add_(offset)
        torch.mul(gradient[part], factor, out=out[part])
        out[part].add_(centered)
        del centered
    kind = mean.dtype if weight is None else weight.dtype
    return out, (weight_sum * deviation).to(kind), bias_sum.to(kind)
