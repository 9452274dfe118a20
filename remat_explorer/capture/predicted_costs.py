"""Predicted costs: rough, for they do not know which kernel a library takes on which day; a profile measures them.

`predicted_time` is that of an operation's calls and `predicted_cost` that of an implementation. On a roofline a call
costs max(FLOPs / rate, bytes / bandwidth) + launch. On a GPU, `works_of` says what a call asks of the device, and
`kernel_time` what kernels of cuDNN, cuBLAS and PyTorch take for that: `SHARES` of the published rates, fitted to the
times that the authors of MONeT (Shah et al., ICLR 2021) measured on a P100, of the operations of five convolutional
networks, by `benchmarks/costs.py --fit`. Other GPUs are taken to reach the same.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from remat_explorer.capture.captured_program import CapturedImplementation
from remat_explorer.capture.devices import Device
from remat_explorer.capture.storages import OperationDraft, Storages

aten = torch.ops.aten
Part = Literal["forward", "input", "weight"]  # the result, or a gradient; that of the bias comes with the weight's
Sizes = Sequence[int]
Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]  # of input, weight and bias
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
Type = Literal["elementwise", "normalization", "concatenation", "pooling_gradient", "adaptive_pooling", "convolution"]
TYPES: dict[Any, Type] = {
    aten.cat: "concatenation",
    aten.max_pool2d_with_indices_backward: "pooling_gradient",
    aten._adaptive_avg_pool2d: "adaptive_pooling",
    aten._adaptive_avg_pool2d_backward: "adaptive_pooling",
    aten.native_batch_norm: "normalization",
    aten.cudnn_batch_norm: "normalization",
    aten._native_batch_norm_legit: "normalization",
    aten._native_batch_norm_legit_functional: "normalization",
    aten._batch_norm_with_update: "normalization",
    aten._batch_norm_with_update_functional: "normalization",
    aten.native_batch_norm_backward: "normalization",
    aten.cudnn_batch_norm_backward: "normalization",
    aten.batch_norm_backward: "normalization",
}
TRANSPOSED: dict[Part, Part] = {"forward": "input", "input": "forward", "weight": "weight"}
FACTORS = {aten.mm: 0, aten.addmm: 1}  # the position of the first factor
TILE = 64  # rows of a matrix product that a block of threads computes at once, and half of the columns
SLICE = 8  # multiplications for each entry that it does before it loads the next factors
WINOGRAD_LAUNCHES = 4  # source, filters, products, result
WINOGRAD_IMAGES = 16  # images that Winograd's algorithm with stored transforms takes at once


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


def predicted_time(calls: Iterable[Node], fakes: Mapping[Node, Any], device: Device) -> float:
    """Seconds of an operation's calls: of their kernels on a GPU, or by the device's roofline. Never 0."""
    if not device.kernels:
        return roofline(calls, fakes, device)
    computed = [call for call in calls if call.target is not operator.getitem]
    return sum(kernel_time(work, device) for call in computed for work in works_of(call, fakes))


def predicted_cost(draft: OperationDraft, way: CapturedImplementation, storages: Storages, device: Device) -> float:
    """Seconds of an implementation: the bytes that it moves, and the arithmetic of the call that it replaces.

    Calls of other operations that it runs again cost what they cost there, and of several parts each changes the cost
    of its own call. An implementation that computes nothing costs a launch: a cost of 0 would let a solver repeat it
    for nothing.
    """
    if way.parts:
        whole = predicted_time(draft.calls, storages.fakes, device)
        return whole + sum(predicted_cost(draft, part, storages, device) - whole for part in way.parts)
    others = [call for call in draft.calls if call is not way.main]
    computed = [call for call in way.steps if call.target is not operator.getitem]
    if not computed:
        return predicted_time(others, storages.fakes, device) + device.launch
    tensors: list[torch.Tensor] = []
    for call in way.steps:
        nodes: list[Node] = []
        map_arg((call.args, call.kwargs), nodes.append)
        given = [storages.fakes[node] for node in (*nodes, call.node)]
        tensors += [fake for fake in given if isinstance(fake, torch.Tensor)]  # of several results, those picked
    moved = sum(t.nbytes for t in {id(t): t for t in tensors}.values())
    own = _time_of_way(way, moved, storages.fakes, device)
    return own + predicted_time((*others, *way.again), storages.fakes, device)


def _time_of_way(way: CapturedImplementation, moved: int, fakes: Mapping[Node, Any], device: Device) -> float:
    """Seconds of the calls that stand in for an implementation's main one, without calls of other operations."""
    launches = way.gpu_launches if device.gpu and way.gpu_launches else way.launches
    if not device.kernels:
        computing = flops(way.main, fakes) * way.arithmetic / device.rate
        return max(computing, moved / device.bandwidth) + launches * device.launch
    works = works_of(way.main, fakes)
    seconds = launches * device.launch
    for work in works:
        asked, times = replace(work.moving(moved / len(works)), flops=work.flops * way.arithmetic), 1.0
        if asked.convolution is not None:
            asked, times = asked.portion(way.portion), 1 / way.portion
        seconds += (kernel_time(asked, device) - device.launch) * times
    return seconds


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


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution or one of its gradients. A transposed convolution is an input gradient, and so on."""

    part: Part
    batch: int  # images
    channels: int  # of the source
    filters: int  # channels of the result
    kernel: tuple[int, ...]  # in space, as source and result
    source: tuple[int, ...]
    result: tuple[int, ...]
    groups: int = 1  # of channels and filters
    plain: bool = True  # whether neither strides nor dilation spread the taps
    entry_bytes: int = 4

    @property
    def depthwise(self) -> bool:
        """Whether each group has one channel."""
        return self.groups > 1 and self.channels == self.groups

    @property
    def winograd(self) -> bool:
        """Whether Winograd's algorithm applies."""
        return self.kernel == (3, 3) and self.plain and self.groups == 1

    @property
    def product(self) -> tuple[int, int, int]:
        """Rows, columns and depth of the matrix product that it is, for each group."""
        channels, filters, taps = self.channels // self.groups, self.filters // self.groups, math.prod(self.kernel)
        spots = self.batch * math.prod(self.result)
        if self.part == "forward":
            return filters, spots, channels * taps
        return (channels, spots, filters * taps) if self.part == "input" else (filters, channels * taps, spots)

    @property
    def taps_tried(self) -> int:
        """How often a depthwise kernel looks at a tap: its input gradient at every one, whatever the stride."""
        spots = max(math.prod(self.source), math.prod(self.result)) if self.part == "input" else math.prod(self.result)
        return self.batch * self.filters * spots * math.prod(self.kernel)

    def squares(self, side: int) -> int:
        """How many squares of that side cover a result."""
        return math.prod(-(-size // side) for size in self.result)

    def winograd_product(self, spots: int) -> tuple[int, int, int]:
        """Rows, columns and depth of one of the products of Winograd's algorithm with that many squares."""
        if self.part == "forward":
            return self.filters, spots, self.channels
        return (self.channels, spots, self.filters) if self.part == "input" else (self.filters, self.channels, spots)


@dataclass(frozen=True)
class Work:
    """What one call asks of a device."""

    type: Type  # of the kernel
    flops: float = 0
    bytes: float = 0  # that it reads and writes, those that it reads again included
    again: float = 0  # bytes among these that it reads once more
    dtype: str = "float32"  # of the factors of a product or convolution
    product: tuple[int, int, int] | None = None  # rows, columns and depth of a matrix product
    convolution: Convolution | None = None

    def moving(self, moved: float) -> Work:
        """The same with another number of bytes, without those read again."""
        return replace(self, bytes=moved + self.again)

    def portion(self, share: float) -> Work:
        """What a part of the batch asks, of a convolution."""
        assert self.convolution is not None
        part = replace(self.convolution, batch=max(1, math.ceil(self.convolution.batch * share)))
        return replace(self, flops=self.flops * share, bytes=self.bytes * share, convolution=part)


def works_of(call: Node, fakes: Mapping[Node, Any]) -> list[Work]:
    """What a call asks: one kernel, or two where a convolution's gradients of input and weight come from one call."""
    packet = getattr(call.target, "overloadpacket", None)
    moved, computed = bytes_moved(call, fakes), flops(call, fakes)
    if packet in (aten.convolution, aten.convolution_backward):
        asked = _convolutions_of(call, fakes)
        dtype = _dtype(fakes[call.args[0]])  # type: ignore[index]
        share = 1 / len(asked)
        return [Work("convolution", computed * share, moved * share, 0, dtype, None, one) for one in asked]
    again = _read_again(call, packet, fakes)
    plain = Work(TYPES.get(packet, "elementwise"), computed, moved + again, again)
    if packet in FACTORS:
        first, second = (fakes[node] for node in call.args[FACTORS[packet] :][:2])  # type: ignore[index]
        (rows, depth), columns = first.shape, second.shape[1]
        return [replace(plain, dtype=_dtype(first), product=(columns, rows, depth))]
    tensors = [fakes[node] for node in call.all_input_nodes if isinstance(fakes[node], torch.Tensor)]
    return [replace(plain, dtype=_dtype(tensors[0]))] if computed and tensors else [plain]


def _convolutions_of(call: Node, fakes: Mapping[Node, Any]) -> list[Convolution]:
    """The sizes of a call of `aten.convolution` or `aten.convolution_backward`, one for each large result."""
    arguments, backward = ConvolutionArguments.of(call), is_backward(call)
    weight, source = (fakes[call.args[place]] for place in ((2, 1) if backward else (1, 0)))  # type: ignore[index]
    result = fakes[call.args[0]] if backward else fakes[call]  # type: ignore[index]
    to_input, to_weight, to_bias = wanted_gradients(call) if backward else (False, False, False)
    parts: list[Part] = [] if backward else ["forward"]
    if to_input:
        parts.append("input")
    if to_weight or to_bias:
        parts.append("weight")
    if arguments.transposed:
        source, result = result, source
        parts = [TRANSPOSED[part] for part in parts]
    return [
        Convolution(
            part,
            source.shape[0],
            source.shape[1],
            weight.shape[0],
            tuple(weight.shape[2:]),
            tuple(source.shape[2:]),
            tuple(result.shape[2:]),
            arguments.groups,
            {*arguments.stride, *arguments.dilation} == {1},
            source.element_size(),
        )
        for part in parts
    ]


def _read_again(call: Node, packet: Any, fakes: Mapping[Node, Any]) -> int:
    """Bytes that a kernel reads once more than it must: overlapping windows, and a second pass of batch norm."""
    if TYPES.get(packet) == "normalization":
        backward = "backward" in str(packet)
        return sum(fakes[node].nbytes for node in call.args[: 1 + backward])  # type: ignore[index]
    if packet is aten.max_pool2d_with_indices:
        source, result = fakes[call.args[0]], fakes[call][0]  # type: ignore[index]
        window: Any = call.args[1]
        taps = math.prod(window) ** (2 // len(window))  # one size stands for both
        return max(0, result.nbytes * taps - source.nbytes)
    return 0


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Shares:
    """What kernels reach of the published rate, or bandwidth, in the best case: of a device that is full."""

    products: float = 0.67  # of the rate: matrix products, and convolutions as such (implicit GEMM)
    input_gradient: float = 0.52  # of the rate: input gradients of convolutions as matrix products
    weight_gradient: float = 0.59  # of the rate
    convolution_bytes: float = 0.41  # of the bandwidth: too few channels for the rate; input gradients, too
    weight_gradient_bytes: float = 0.16  # of the bandwidth: weight gradients of these, which add up over all positions
    winograd: float = 0.90  # of the rate: the products of Winograd's F(4 x 4, 3 x 3)
    winograd_bytes: float = 0.58  # of the bandwidth: its transforms, which are stored
    fused_winograd: float = 0.47  # of the rate: F(2 x 2, 3 x 3), whose transforms are not stored
    depthwise: float = 0.023  # of the rate: depthwise convolutions, which reuse next to nothing
    depthwise_gradients: float = 0.018  # of the rate: their gradients
    elementwise: float = 0.72  # of the bandwidth: each entry once; max pooling, once for each of its windows
    normalization: float = 0.53  # of the bandwidth: batch norm, which reads its input twice
    concatenation: float = 0.47  # of the bandwidth
    pooling_gradient: float = 0.092  # of the bandwidth: search for the windows whose maximum an entry is
    adaptive_pooling: float = 0.14  # of the bandwidth: adaptive average pooling and its gradient


SHARES = Shares()


def kernel_time(work: Work, device: Device, shares: Shares = SHARES) -> float:
    """Seconds of one call on a GPU, never less than a launch."""
    if work.convolution is not None:
        return _convolution_time(work, work.convolution, device, shares)
    moving = work.bytes / device.bandwidth / getattr(shares, work.type)
    if work.product is not None:
        computing = _product_time(*work.product, device.rate_of(work.dtype, False) * shares.products)
    else:
        computing = work.flops / (device.rate_of(work.dtype, False) * shares.products)
    return max(computing, moving) + device.launch


def _convolution_time(work: Work, asked: Convolution, device: Device, shares: Shares) -> float:
    """The fastest of cuDNN's algorithms, as PyTorch takes it where its memory suffices."""
    if asked.depthwise:
        share = shares.depthwise if asked.part == "forward" else shares.depthwise_gradients
        moving = work.bytes / (device.bandwidth * shares.elementwise)
        return max(asked.taps_tried * 2 / (device.rate * share), moving) + device.launch
    rate, memory = {
        "forward": (shares.products, shares.convolution_bytes),
        "input": (shares.input_gradient, shares.convolution_bytes),
        "weight": (shares.weight_gradient, shares.weight_gradient_bytes),
    }[asked.part]
    rows, columns, depth = asked.product
    tensor = device.rate_of(work.dtype, True)
    wide = TILE if asked.part == "weight" else 2 * TILE
    computing = asked.groups * _product_time(rows, columns, depth, tensor * rate, wide)
    times = [max(computing, work.bytes / (device.bandwidth * memory)) + device.launch]
    if asked.winograd:
        times.append(_stored_winograd_time(work, asked, device, shares))
        if asked.part != "weight":
            times.append(_fused_winograd_time(work, asked, device, shares))
    return min(times)


def _stored_winograd_time(work: Work, asked: Convolution, device: Device, shares: Shares) -> float:
    """F(4 x 4, 3 x 3): a quarter of the multiplications, and transforms in memory of 36 entries for 16.

    Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
    """
    images = asked.batch if asked.part == "weight" else _up(asked.batch, WINOGRAD_IMAGES)
    spots = images * asked.squares(4)
    products = 36 * _product_time(*asked.winograd_product(spots), device.rate * shares.winograd)
    stored = 2 * 36 * spots * (asked.channels + asked.filters) * asked.entry_bytes
    moving = (work.bytes + stored) / (device.bandwidth * shares.winograd_bytes)
    return products + moving + WINOGRAD_LAUNCHES * device.launch


def _fused_winograd_time(work: Work, asked: Convolution, device: Device, shares: Shares) -> float:
    """F(2 x 2, 3 x 3) in one kernel: 2.25 times fewer multiplications."""
    spots = asked.batch * asked.squares(2)
    computing = 16 * _product_time(*asked.winograd_product(spots), device.rate * shares.fused_winograd)
    return max(computing, work.bytes / (device.bandwidth * shares.elementwise)) + device.launch


def _product_time(rows: int, columns: int, depth: int, rate: float, wide: int = 2 * TILE) -> float:
    """A matrix product in whole tiles and slices: what is missing of the last ones is computed for nothing."""
    return 2 * _up(rows, TILE if rows > TILE // 2 else TILE // 2) * _up(columns, wide) * _up(depth, SLICE) / rate


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
