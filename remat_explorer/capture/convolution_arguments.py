"""What `aten.convolution` and `aten.convolution_backward` take beside tensors and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch.fx import Node

aten = torch.ops.aten
Part = Literal["forward", "input", "weight"]  # the result, or a gradient; that of the bias comes with the weight's
Sizes = Sequence[int]
Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]  # of input, weight and bias


class ConvolutionArguments(NamedTuple):
    """The arguments of a convolution, in aten's order; sizes have an entry for each dimension of space."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    output_padding: Sizes
    groups: int

    @staticmethod
    def of(call: Node) -> ConvolutionArguments:
        """Those of a call of `aten.convolution` or `aten.convolution_backward`, whose lists have no defaults."""
        first = 4 if is_backward(call) else 3
        return ConvolutionArguments(*call.args[first : first + 6])  # type: ignore[arg-type]

    def convolution(self, source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`aten.convolution` with these arguments."""
        return aten.convolution.default(source, weight, bias, *self)

    def backward(
        self,
        gradient: torch.Tensor,
        source: torch.Tensor,
        weight: torch.Tensor,
        bias_sizes: Sizes | None,
        mask: Sequence[bool],
    ) -> Gradients:
        """`aten.convolution_backward` with these arguments; ``mask`` is for the gradients of input, weight and bias."""
        return aten.convolution_backward.default(gradient, source, weight, bias_sizes, *self, list(mask))


def is_backward(call: Node) -> bool:
    """Whether a call is one of `aten.convolution_backward`."""
    return getattr(call.target, "overloadpacket", None) is aten.convolution_backward


def wanted_gradients(call: Node) -> tuple[bool, bool, bool]:
    """Which gradients a call of `aten.convolution_backward` gives: of input, weight and bias."""
    mask: Any = call.args[10]
    to_input, to_weight, to_bias = mask
    return to_input, to_weight, to_bias


def part_of(call: Node) -> Part | None:
    """Which part of a convolution a call is, or None where the gradients of input and weight come in one."""
    if not is_backward(call):
        return "forward"
    to_input, to_weight, to_bias = wanted_gradients(call)
    if to_input:
        return None if to_weight or to_bias else "input"
    return "weight"
