"""Calls that can write their result over an operand: which, how, and when that is safe.

All of them go element by element, so a kernel has read an entry of the operand before it writes that entry of the
result; PyTorch allows the same tensor as input and output for every one of them. The numbers are those of the call
that takes a new tensor, bit for bit.

Source: MONeT (Shah et al., ICLR 2021), appendix C.1, for operations in place as a choice of the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.in_place_layouts import sigmoid_in_layout, sigmoid_in_layout_
from remat_explorer.capture.storages import OperationDraft, Readers, StorageDraft, Storages

aten = torch.ops.aten
IN_PLACE: dict[Any, Callable[..., Any]] = {
    aten.relu.default: aten.relu_.default,
    aten.hardtanh.default: aten.hardtanh_.default,
    aten.gelu.default: aten.gelu_.default,
    aten.silu.default: aten.silu_.default,
    aten.sigmoid.default: aten.sigmoid_.default,
    sigmoid_in_layout: sigmoid_in_layout_,
    aten.tanh.default: aten.tanh_.default,
    aten.leaky_relu.default: aten.leaky_relu_.default,
    aten.hardswish.default: aten.hardswish_.default,
    aten.neg.default: aten.neg_.default,
    aten.add.Scalar: aten.add_.Scalar,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.div.Scalar: aten.div_.Scalar,
    aten.add.Tensor: aten.add_.Tensor,
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.div.Tensor: aten.div_.Tensor,
}
COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor)
SWAPPED = "swapped"  # key of Node.meta: the operands of a commutative call have changed places
OVER_GRADIENT: dict[Any, Any] = {  # the gradient of the output comes first, and takes the gradient of the input
    aten.threshold_backward.default: aten.threshold_backward.grad_input,
    aten.hardtanh_backward.default: aten.hardtanh_backward.grad_input,
    aten.gelu_backward.default: aten.gelu_backward.grad_input,
    aten.silu_backward.default: aten.silu_backward.grad_input,
    aten.sigmoid_backward.default: aten.sigmoid_backward.grad_input,
    aten.tanh_backward.default: aten.tanh_backward.grad_input,
    aten.leaky_relu_backward.default: aten.leaky_relu_backward.grad_input,
    aten.elu_backward.default: aten.elu_backward.grad_input,
    aten.softplus_backward.default: aten.softplus_backward.grad_input,
    aten.hardsigmoid_backward.default: aten.hardsigmoid_backward.grad_input,
    aten.hardswish_backward.default: aten.hardswish_backward.out,
}
_COMPLEX = (torch.complex32, torch.complex64, torch.complex128)
ROUNDS_OTHERWISE: dict[Any, tuple[torch.dtype, ...]] = {  # types of which the result over an operand is another
    **dict.fromkeys((*IN_PLACE, *OVER_GRADIENT), _COMPLEX),
    **dict.fromkeys((aten.neg.default, aten.add.Scalar, aten.add.Tensor, aten.sub.Tensor), ()),
    aten.mul.Scalar: (torch.bfloat16, torch.float16, *_COMPLEX),  # mul_ does not round the factor first
}


@dataclass(frozen=True)
class Overwriting:
    """A call with the arguments of the plain one that writes its result over the one at ``position``, and returns it.

    >>> x, y = torch.ones(2), torch.ones(2)
    >>> Overwriting(aten.add.Tensor, 1)(x, y) is y, x.tolist(), y.tolist()
    (True, [1.0, 1.0], [2.0, 2.0])
    """

    plain: Callable[..., Any]
    position: int = 0

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        kernel, args, kwargs = self.lowered(args, kwargs)
        return kernel(*args, **kwargs)

    def lowered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], Any, Any]:
        """The operator that does it, with its arguments."""
        if self.plain in OVER_GRADIENT:
            kernel = OVER_GRADIENT[self.plain]
            return kernel, args, {**kwargs, kernel._schema.arguments[-1].name: args[self.position]}
        others = args[: self.position] + args[self.position + 1 :]
        return IN_PLACE[self.plain], (args[self.position], *others), kwargs

    def __str__(self) -> str:
        plain = self.plain if isinstance(self.plain, OpOverload) else self.plain.__qualname__
        return f"{plain} over argument {self.position}"


@dataclass(frozen=True, eq=False)
class Takeover:
    """What an operation may overwrite: a storage, and the call that does it in place of the operation's first."""

    storage: StorageDraft
    call: Overwriting


def covers(source: Node, call: Node, storages: Storages) -> bool:
    """Whether ``call`` could write its result over ``source`` and fill the storage.

    How a complex product or quotient is rounded depends on the order of its operands and on where its result goes.
    """
    dtype = storages.fakes[source].dtype
    if dtype in ROUNDS_OTHERWISE.get(call.target, _COMPLEX) or (dtype.is_complex and call.kwargs):
        return False
    return fits(source, call, storages)


def fits(source: Node, call: Node, storages: Storages) -> bool:
    """Whether two nodes have the same layout, and each all of its storage."""
    before, after = storages.fakes[source], storages.fakes[call]
    return _layout(before) == _layout(after) and (
        storages.of_node[source].bytes == storages.of_node[call].bytes == before.numel() * before.element_size()
    )


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """How a tensor's entries are read from its memory, of which some may be conjugated or negated at each reading."""
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg()


def swap_operands(call: Node) -> None:
    """Let the operands of a commutative call change places, so that the other one is first and may be overwritten.

    No number changes. The strides of a result may be those of the first operand, so it is noted.
    """
    call.args = (call.args[1], call.args[0])
    call.meta[SWAPPED] = not call.meta.get(SWAPPED, False)


def takeover_of(draft: OperationDraft, storages: Storages, readers: Readers) -> Takeover | None:
    """What ``draft`` may overwrite where it dies, or None; ``readers`` as `Storages.readers` gives them.

    It is read by the first call alone, and by that once; the calls after it, if any, overwrite the result of the first.
    Of two operands that would do, the one that fewer operations read later is more likely to die.
    """
    first, *rest = draft.nodes
    if len(draft.writes) != 1 or not draft.in_place.issuperset(rest) or is_random(draft.nodes):
        return None
    operands = [storages.of_node.get(node) for call in draft.nodes for node in _operands(call)]
    fitting: list[tuple[int, StorageDraft]] = []
    for position in _positions(first):
        source = first.args[position]
        storage = storages.of_node.get(source) if isinstance(source, Node) else None
        if storage is None or storage.resident or storage.persistent or operands.count(storage) > 1:
            continue
        if covers(source, first, storages) and storage.bytes == draft.writes[0].bytes:  # type: ignore[arg-type]
            fitting.append((position, storage))
    if not fitting:
        return None
    if len(fitting) > 1:
        fitting.sort(key=lambda entry: _later(draft, readers[entry[1]]))  # the first where equal
    position, storage = fitting[0]
    return Takeover(storage, Overwriting(first.target, position))  # type: ignore[arg-type]


def _later(draft: OperationDraft, readers: list[OperationDraft]) -> int:
    """How many of ``readers``, of which ``draft`` is one, run after it."""
    return len(readers) - 1 - readers.index(draft)


def _positions(call: Node) -> tuple[int, ...]:
    """The arguments that a call could overwrite."""
    if call.target in COMMUTATIVE and not call.kwargs:  # with a factor, operands cannot change places
        return (0, 1)
    return (0,) if call.target in IN_PLACE or call.target in OVER_GRADIENT else ()


def _operands(call: Node) -> Iterator[Node]:
    """Every node among a call's arguments, as often as it occurs."""
    nodes: list[Node] = []
    map_arg((call.args, call.kwargs), nodes.append)
    return iter(nodes)
