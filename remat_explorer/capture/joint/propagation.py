"""What each node of the joint graph gives: tensors with the shape, layout and storage that a run would give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import TangentAOTInput
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from remat_explorer.abandoning import go_on
from remat_explorer.capture.joint.recurrent_layers import kernel_of
from remat_explorer.errors import CaptureError

Fakes = dict[Node, Any]


def propagate(module: GraphModule, real: Mapping[Node, torch.Tensor] | None = None) -> Fakes:
    """Run the graph and give the FakeTensors of every node; equal storages have equal `storage_key`.

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
    with torch.no_grad(), mode if real is None else torch.random.fork_rng():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = _given(node) if real is None else real[node]
            elif node.op == "get_attr":
                values[node] = getattr(module, str(node.target))
                if real is None and not isinstance(values[node], FakeTensor):
                    values[node] = mode.from_tensor(values[node])
            elif node.op == "call_function":
                values[node] = run_node(node, values)
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
    """What a call gives for the values of its arguments.

    Raises:
        CaptureError: if that is no tensor.
    """
    go_on()
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    value = kernel_of(node)(*args, **kwargs)
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
