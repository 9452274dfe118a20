"""From a model's output to the scalar that backward starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from remat_explorer.capture.nesting import tensors_in
from remat_explorer.errors import CaptureError

Loss = Callable[[Any], torch.Tensor]


def scalar(output: Any, loss: Loss | None) -> torch.Tensor:
    """What ``loss`` makes of ``output``, or without one the loss that the output is or has, or else its sum.

    In this order: a scalar output; the scalar called ``loss`` of an output that has one, as attribute or key, such as
    the outputs of transformers models that were given labels; the sum of all floating-point tensors.

    Raises:
        CaptureError: if that is no scalar, is not real, or no parameter has a part in it.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> scalar({"logits": weight, "loss": weight.mean()}, None)
    tensor(1., grad_fn=<MeanBackward0>)
    >>> scalar((weight, 2 * weight), None)
    tensor(9., grad_fn=<AddBackward0>)
    """
    if loss is not None:
        value = loss(output)
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            shape = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise CaptureError(f"the loss must give a tensor with one element, but it gave {shape}")
    else:
        value = _own_loss(output)
        value = _sum(output) if value is None else value
    if not value.is_floating_point():
        advice = "take .abs() or .real" if value.is_complex() else "pass loss=... that gives a floating-point tensor"
        raise CaptureError(f"the loss is {value.dtype}, which has no gradient; {advice}")
    if not value.requires_grad:
        raise CaptureError(
            "the loss depends on no parameter that requires a gradient: its output is detached, computed under "
            "torch.no_grad(), or made of whole numbers; train with a differentiable output"
        )
    return value


def _own_loss(output: Any) -> torch.Tensor | None:
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    for candidate in (output, found):
        if isinstance(candidate, torch.Tensor) and candidate.numel() == 1:
            return candidate
    return None


def _sum(output: Any) -> torch.Tensor:
    floating = [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]
    if not floating:
        raise CaptureError(f"the model gives {_describe(output)} without a floating-point tensor; pass loss=...")
    total = floating[0].sum()
    for tensor in floating[1:]:
        total = total + tensor.sum()
    return total


def _describe(output: Any) -> str:
    if isinstance(output, torch.Tensor):
        return f"a tensor of {output.dtype}"
    return "None" if output is None else type(output).__name__
