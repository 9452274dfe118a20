"""What an operation costs: floating-point operations, bytes moved, and the roofline of the two."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from remat_explorer.capture.operations.convolution_arguments import ConvolutionArguments, wanted_gradients
from remat_explorer.capture.operations.devices import Device

aten = torch.ops.aten
SHAPE_ONLY: dict[Any, int] = {  # arguments of which a kernel needs the shape and no entry, by position
    aten.max_pool2d_with_indices_backward: 1,
    aten.avg_pool2d_backward: 1,
    aten._adaptive_avg_pool2d_backward: 1,
}
ATTENTION = {packet for packet in flop_registry if "_scaled_dot_product_" in str(packet)}
LAYERS: dict[Any, int] = {  # recurrent ones: how often each weight meets each row of input or state
    aten.mkldnn_rnn_layer: 1,
    aten.mkldnn_rnn_layer_backward: 2,
}


def flops(node: Node, fakes: Mapping[Node, Any]) -> int:
    """Floating-point operations of one call, a multiplication and an addition counted as two.

    Source: the formulas of `torch.utils.flop_counter`. Its weight gradient of a grouped convolution is wrong by the
    number of groups; there, each gradient takes what the forward pass takes. Those of attention in PyTorch 2.11 know no
    groups of queries; heads of keys and values count here as often as they are used.
    """
    packet = getattr(node.target, "overloadpacket", None)
    if packet in LAYERS:
        x, ih, hh = (fakes[argument] for argument in node.args[:3])  # type: ignore[index]
        return LAYERS[packet] * 2 * x.shape[0] * x.shape[1] * (ih.numel() + hh.numel())
    if packet not in flop_registry:
        return 0
    arguments: Any = map_arg((node.args, node.kwargs), fakes.__getitem__)
    args, kwargs = arguments
    if packet is aten.convolution_backward and (convolution := ConvolutionArguments.of(node)).groups != 1:
        gradient, source, weight, *_ = args
        forward = flop_registry[aten.convolution](source, weight, None, *convolution, out_val=gradient)
        return int(forward) * sum(wanted_gradients(node)[:2])
    if packet in ATTENTION:
        args = (*_with_equal_heads(args[:4]), *args[4:])
    return int(flop_registry[packet](*args, **kwargs, out_val=fakes[node]))


def _with_equal_heads(arguments: Sequence[Any]) -> list[Any]:
    """The shapes of queries, keys, values and gradients, with as many heads for all as there are queries."""
    shapes = [tuple(t.shape) if isinstance(t, torch.Tensor) and t.dim() == 4 else () for t in arguments]
    heads = max(shape[1] for shape in shapes if shape)
    equal = (torch.empty(shape[0], heads, *shape[2:], device="meta") if shape else None for shape in shapes)
    return [given if made is None else made for given, made in zip(arguments, equal, strict=True)]


def bytes_moved(node: Node, fakes: Mapping[Node, Any]) -> int:
    """Bytes of every tensor that a call reads or writes; of some it knows but the shape."""
    unread = _unread(node)
    args = tuple(None if position == unread else argument for position, argument in enumerate(node.args))
    arguments = map_arg((args, node.kwargs), fakes.__getitem__)
    tensors = [t for t in pytree.tree_leaves((arguments, fakes[node])) if isinstance(t, torch.Tensor)]
    return sum(t.numel() * t.element_size() for t in tensors)


def _unread(node: Node) -> int | None:
    """The position of the tensor of which a call needs the shape alone; of a convolution's gradients, one alone."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is aten.convolution_backward:
        of_input, of_weight, _ = wanted_gradients(node)
        return 1 if not of_weight else 2 if not of_input else None
    return SHAPE_ONLY.get(packet)


def roofline(calls: Iterable[Node], fakes: Mapping[Node, Any], device: Device) -> float:
    """Seconds of an operation: for each call max(FLOPs / rate, bytes / bandwidth) + launch. Never 0.

    Source: Williams, Waterman and Patterson, "Roofline", CACM 2009.
    """
    return sum(
        max(flops(call, fakes) / device.rate, bytes_moved(call, fakes) / device.bandwidth) + device.launch
        for call in calls
        if call.target is not operator.getitem
    )
