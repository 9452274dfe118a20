"""What each node of the joint graph gives: tensors with the shape, layout and storage that a run would give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import TangentAOTInput
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from remat_explorer.cancellation import raise_if_cancelled
from remat_explorer.capture.cuda_operators import FUSED_CELLS
from remat_explorer.capture.fake_tensors import RECURRENT_LAYERS, traced_kernel
from remat_explorer.errors import CaptureError

Fakes = dict[Node, Any]
_CALL = "remat_explorer_call"
_UNTOLD = (*RECURRENT_LAYERS, *FUSED_CELLS)  # what these give depends on more than their arguments


def record_calls(module: GraphModule) -> None:
    """Note from what each call of a traced graph made its new tensors, so that `propagate` need not make them again."""
    for node in module.graph.nodes:
        if node.op == "call_function" and _makes_new_tensors(node):
            _note(node)


def record_again(node: Node) -> None:
    """Say that a call with its present arguments gives what the trace had for it."""
    if _CALL in node.meta:
        _note(node)


def _note(node: Node) -> None:
    node.meta[_CALL] = _call(node, {source: source.meta["val"] for source in node.all_input_nodes})


def _makes_new_tensors(node: Node) -> bool:
    """Whether a call gives tensors in storages of their own, which its arguments determine."""
    operator = node.target
    if not isinstance(operator, OpOverload) or operator.namespace != "aten" or operator in _UNTOLD:
        return False
    if operator._schema.is_mutable or torch.Tag.dynamic_output_shape in operator.tags:
        return False
    sources = [source.meta.get("val") for source in node.all_input_nodes]
    given, made = tensors_of(sources), tensors_of(node.meta.get("val"))
    if any(not isinstance(tensor, FakeTensor) for tensor in (*given, *made)) or len(given) != len(sources):
        return False
    if any(tensor.layout != torch.strided for tensor in (*given, *made)):
        return False
    return bool(made) and len(_storages(made)) == len(made) and not _storages(made) & _storages(given)


def _storages(value: Any) -> set[int]:
    """The keys of the storages of what a call gives, or of several tensors."""
    tensors = [value] if isinstance(value, torch.Tensor) else tensors_of(value)
    return {storage_key(tensor) for tensor in tensors if tensor.layout == torch.strided}


def _call(node: Node, values: Mapping[Node, Any]) -> Any:
    """A call with layouts in place of tensors."""
    return node.target, map_arg((node.args, node.kwargs), lambda source: _layout(values[source]))


def _layout(tensor: Any) -> Any:
    if not isinstance(tensor, FakeTensor):
        return tensor
    size = tensor.untyped_storage().nbytes()
    kind = tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad, tensor.is_conj(), tensor.is_neg()
    return *kind, tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), size


def propagate(module: GraphModule, real: Mapping[Node, torch.Tensor] | None = None) -> Fakes:
    """Run the graph and give the FakeTensors of every node; equal storages have equal `storage_key`.

    Of a call that is as `record_calls` found it they are those of the trace.

    Keeping the result alive keeps the keys apart: no two storages get one address.

    Args:
        module: the joint graph.
        real: tensors for the placeholders. With them the true kernels run, everything is kept until the end, and the
            FakeTensors describe what the kernels gave; without them nothing is allocated.

    Raises:
        CaptureError: if the model takes no tensors, or an operator gives none.
    """
    mode = fake_mode(module)
    values: Fakes = {}
    taken: set[int] = set()  # storages
    with torch.no_grad(), mode if real is None else torch.random.fork_rng():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = _given(node) if real is None else real[node]
            elif node.op == "get_attr":
                values[node] = getattr(module, str(node.target))
                if isinstance(values[node], GraphModule):
                    raise NotImplementedError(f"operator over functions: {next(iter(node.users)).target}")
                if real is None and not isinstance(values[node], FakeTensor):
                    values[node] = mode.from_tensor(values[node])
            elif node.op == "call_function":
                is_known = real is None and _CALL in node.meta and node.meta[_CALL] == _call(node, values)
                if is_known and not taken & _storages(node.meta["val"]):
                    values[node] = node.meta["val"]
                else:
                    values[node] = run_node(node, values)
            if node in values and real is None:
                taken |= _storages(values[node])
    if real is None:
        return values
    return {node: pytree.tree_map_only(torch.Tensor, mode.from_tensor, value) for node, value in values.items()}


def _given(node: Node) -> Any:
    """The FakeTensor of an input. A gradient that comes from outside has storage of its own, not the output's."""
    fake = node.meta["val"]
    if not isinstance(node.meta.get("desc"), TangentAOTInput):
        return fake
    return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def run_node(node: Node, values: Mapping[Node, Any]) -> Any:
    """What a call gives for the values of its arguments; a CaptureError if that is no tensor."""
    raise_if_cancelled()
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    value = traced_kernel(node)(*args, **kwargs)
    if not tensors_of(value):
        raise CaptureError(f"{node.target} gives no tensor; such an operation has no place in a plan")
    return value


def fake_mode(module: GraphModule) -> FakeTensorMode:
    """The mode that the graph's inputs belong to.

    Raises:
        CaptureError: if it has no inputs.
    """
    mode = detect_fake_mode([node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"])
    if mode is None:
        raise CaptureError("the model takes no tensors: it has neither parameters nor inputs")
    return mode


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in a call's result."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def storage_key(tensor: torch.Tensor) -> int:
    """The same number for two tensors exactly if they share a storage."""
    return tensor.untyped_storage()._cdata
