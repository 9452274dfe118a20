"""What a call asks of a device: type, floating-point operations, bytes, and the sizes of products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch.fx import Node

from remat_explorer.capture.operations.convolution_arguments import (
    ConvolutionArguments,
    Part,
    is_backward,
    wanted_gradients,
)
from remat_explorer.capture.operations.costs import bytes_moved, flops

aten = torch.ops.aten
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


@dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution or one of its gradients. A transposed convolution is an input gradient, and so on.

    Attributes:
        part: which of them it is.
        batch: images.
        channels: of the source.
        filters: channels of the result.
        kernel: sizes of the filters in space.
        source: sizes of the source in space.
        result: sizes of the result in space.
        groups: of channels and filters.
        plain: whether neither strides nor dilation spread the taps.
        entry_bytes: of a tensor's entry.

    >>> Convolution("forward", 2, 3, 8, (3, 3), (6, 6), (6, 6)).product
    (8, 72, 27)
    """

    part: Part
    batch: int
    channels: int
    filters: int
    kernel: tuple[int, ...]
    source: tuple[int, ...]
    result: tuple[int, ...]
    groups: int = 1
    plain: bool = True
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
    """What one call asks of a device.

    Attributes:
        type: of the kernel.
        flops: floating-point operations.
        bytes: that it reads and writes, those that it reads again included.
        again: bytes among these that it reads once more.
        dtype: of the factors of a product or convolution.
        product: rows, columns and depth of a matrix product.
        convolution: the sizes of a convolution.
    """

    type: Type
    flops: float = 0
    bytes: float = 0
    again: float = 0
    dtype: str = "float32"
    product: tuple[int, int, int] | None = None
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
        asked = convolutions_of(call, fakes)
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


def convolutions_of(call: Node, fakes: Mapping[Node, Any]) -> list[Convolution]:
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
