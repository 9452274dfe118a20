"""What people are told of a captured operation: module, operators, shapes, and the line it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import TangentAOTInput
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.operations.naming import AROUND, MODULE_PATH, SOURCE_FILE, SOURCE_LINE, operator_name
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft, Storages
from remat_explorer.operation_details import AutogradNode, Details, shape_text

LONGEST = 300  # letters of a call
_aten = torch.ops.aten
_FACTORS = (_aten.mul.Tensor, _aten.div.Tensor)


def details_of(
    draft: OperationDraft, storages: Storages, number: dict[StorageDraft, int], name_of: Callable[[Node], str]
) -> Details:
    """The details of an operation; a backward operation has the module and line of its forward operation.

    Args:
        draft: the operation.
        storages: all of them.
        number: for each storage its value id.
        name_of: what the code of a plan calls the tensor of a node.
    """
    calls = draft.calls
    origin = next((call.meta for call in calls if call.meta.get(SOURCE_LINE)), {})
    outputs = sorted(draft.writes, key=number.__getitem__)
    return Details(
        calls[0].meta.get(MODULE_PATH, "") if calls else "",
        " + ".join(operator_name(call) for call in calls),
        tuple(_shape(storage.carrier.meta.get("val")) for storage in outputs),
        origin.get(SOURCE_LINE, ""),
        origin.get(SOURCE_FILE),
        tuple(call_text(call, name_of) for call in calls),
        calls[0].meta.get(AROUND, ()) if calls else (),
        _autograd_node(calls[-1], draft.backward, storages) if calls else None,
        is_random(draft.nodes),
    )


def _autograd_node(call: Node, backward: bool, storages: Storages) -> AutogradNode:
    number = None if call.meta.get("is_gradient_acc") else call.meta.get("seq_nr")
    read = (storages.of_node[node].carrier for node in call.all_input_nodes if node in storages.of_node)
    given = [node.meta.get("desc") for node in read if node.op in ("placeholder", "get_attr")]
    resident = any(not isinstance(one, TangentAOTInput) if backward else one in storages.trained for one in given)
    scalar = call.target in _FACTORS and not isinstance(call.args[1], Node)
    noise = 0
    if call.target is _aten.native_dropout.default and storages.fakes[call][1].device.type == "cpu":
        result, mask = storages.fakes[call]  # PyTorch multiplies by noise of the input's type there
        noise = result.nbytes - mask.nbytes
    return AutogradNode(-1 if number is None else number, storages.order[call], resident, scalar, noise)


class _Name(str):
    """A name that stands without quotes where arguments are written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def call_text(call: Node, name_of: Callable[[Node], str]) -> str:
    """A call as a line of Python, as the code of a plan has it.

    >>> import torch
    >>> graph = torch.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> call_text(graph.call_function(torch.ops.aten.sum.dim_IntList, (x, [0], True)), lambda node: node.name)
    'sum_dim_int_list = torch.ops.aten.sum.dim_IntList(x, [0], True)'
    """
    args, kwargs = map_arg((call.args, call.kwargs), lambda node: _Name(name_of(node)))
    given = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    target = call.target
    packet = getattr(target, "overloadpacket", None)
    name = f"torch.ops.{target}" if packet is not None else getattr(target, "__name__", str(target))
    text = f"{name_of(call)} = {name}({', '.join(given)})"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}…)"


def identifier(name: str) -> str:
    """A name as Python can have it.

    >>> identifier("0 linear + relu")
    '_0_linear_relu'
    """
    name = re.sub(r"\W+", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def _shape(result: Any) -> str:
    """The shape of what a node gives; of several results, the first."""
    tensor: Any = result[0] if isinstance(result, tuple | list) and result else result
    return shape_text(tuple(int(size) for size in tensor.shape)) if hasattr(tensor, "shape") else ""
