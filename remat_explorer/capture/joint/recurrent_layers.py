"""What oneDNN's recurrent layers give, down to the workspace whose size only the library knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.step.autocast import no_autocast

aten = torch.ops.aten
PAGE = 4096  # bytes; oneDNN begins each part of a workspace on a new one
LONG = 2**31  # floating-point operations of a run that shall only tell a size


def _layer(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    """Output, last hidden and cell state, and the workspace that the backward pass reads."""
    _, _, _, _, hx, cx, reverse, _, mode, hidden_size, _, has_biases, _, _, train = args
    steps, batch, size = x.shape
    workspace = 0
    if torch.is_grad_enabled():
        workspace = workspace_bytes(steps, batch, size, hidden_size, mode, x.dtype, bool(reverse), has_biases, train)
    output = x.new_empty((steps, batch, hidden_size))
    return output, hx.new_empty(hx.shape), cx.new_empty(cx.shape), x.new_empty(workspace, dtype=torch.uint8)


def _layer_backward(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
    """Gradients of input, both weights, both biases, hidden and cell state; in single precision, whatever these have.

    A layer without biases has zeros for them, in the shape of the weights; their gradient has one entry a row.
    """
    ih, hh, bias, _, hx, cx = args[:6]
    shapes = (x.shape, ih.shape, hh.shape, bias.shape[:1], bias.shape[:1], hx.shape, cx.shape)
    return tuple(x.new_empty(shape, dtype=torch.float32) for shape in shapes)


# What makes the FakeTensors of a call: those of torch have a workspace of no bytes, and give the gradients of both
# biases one storage or two, depending on what was traced before.
RECURRENT_LAYERS: Mapping[OpOverload, Callable[..., Any]] = {
    aten.mkldnn_rnn_layer.default: _layer,
    aten.mkldnn_rnn_layer_backward.default: _layer_backward,
}


def kernel_of(node: Node) -> Callable[..., Any]:
    """What runs for a call of the joint graph: its target, or for a layer with a workspace a function of this file.

    A plan runs without gradients, and oneDNN then takes another kernel, with other last digits and without a workspace.
    """
    trains = node.target is aten.mkldnn_rnn_layer.default and node.meta["val"][3].numel() > 0
    return layer_with_workspace if trains else node.target  # type: ignore[return-value]


def layer_with_workspace(*args: Any) -> Any:
    """A recurrent layer by the kernel that training takes: output, last hidden and cell state, workspace."""
    with torch.enable_grad():
        return aten.mkldnn_rnn_layer.default(*args)


@cache
def workspace_bytes(
    steps: int,
    batch: int,
    size: int,
    hidden_size: int,
    mode: int = 2,
    dtype: torch.dtype = torch.float32,
    reverse: bool = False,
    has_biases: bool = True,
    train: bool = True,
) -> int:
    """Bytes that one oneDNN layer keeps for its backward pass. The library is asked by a run on zeros.

    A workspace has parts whose bytes are multiples of the number of steps, and each begins on a page of its own. So two
    short runs tell the size of a long one exactly, if their numbers of steps leave as much of a page as the long one.

    Args:
        steps, batch, size: shape of the input.
        mode: the kind of layer, as torch numbers them; 2 is an LSTM.

    >>> workspace_bytes(64, 32, 16, 16) == workspace_bytes(64, 32, 16, 16, reverse=True)
    True
    """

    def asked(length: int) -> int:
        return _asked(length, batch, size, hidden_size, mode, dtype, reverse, has_biases, train)

    period = PAGE // math.gcd(PAGE, batch * dtype.itemsize)
    short = steps % period + period
    if short + period >= steps or 8 * steps * batch * hidden_size * (size + hidden_size) < LONG:
        return asked(steps)
    first, second = asked(short), asked(short + period)
    return first + (second - first) * ((steps - short) // period)


def _asked(
    steps: int,
    batch: int,
    size: int,
    hidden_size: int,
    mode: int,
    dtype: torch.dtype,
    reverse: bool,
    has_biases: bool,
    train: bool,
) -> int:
    with _disable_current_modes(), no_autocast(), torch.inference_mode(False), torch.enable_grad():
        rows = 4 * hidden_size
        bias = torch.zeros(rows, dtype=dtype)
        weights = (torch.zeros(rows, size, dtype=dtype), torch.zeros(rows, hidden_size, dtype=dtype), bias, bias)
        state, x = torch.zeros(batch, hidden_size, dtype=dtype), torch.zeros(steps, batch, size, dtype=dtype)
        kind = (mode, hidden_size, 1, has_biases, False, False, train)
        return aten.mkldnn_rnn_layer(x, *weights, state, state, reverse, [], *kind)[3].untyped_storage().nbytes()
