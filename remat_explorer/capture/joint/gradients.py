"""Gradients as autograd would leave them: one for each parameter, in memory of its own; those of inputs as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, ParamAOTInput, TangentAOTInput
from torch.fx import GraphModule, Node

from remat_explorer.capture.joint.cleaning import output_node, results_of
from remat_explorer.capture.joint.propagation import Fakes, run_node, storage_key

aten = torch.ops.aten


def own_gradients(module: GraphModule, fakes: Fakes) -> None:
    """Copy a gradient that shares memory with an input or another result, or is not laid out as its parameter is.

    The export returns such gradients as they come: of ``a + b`` one tensor for both, of ``x.sum()`` one number seen
    as many. Autograd's AccumulateGrad copies them, so that writing to one ``.grad`` changes no other.

    The gradient of an input goes on to what the input comes from. It may have any layout, and may be that of an output
    (a tangent), as in plain PyTorch; it is copied where it shares memory with anything else.

    Args:
        module: the joint graph, changed in place.
        fakes: its values; those of the copies are added.
    """
    output = output_node(module)
    placeholders = {node.meta["desc"]: node for node in module.graph.nodes if node.op == "placeholder"}
    given = [node for node in module.graph.nodes if node.op in ("placeholder", "get_attr")]
    taken = {storage_key(fakes[node]) for node in given}
    tangents = {storage_key(fakes[node]) for node in given if isinstance(node.meta.get("desc"), TangentAOTInput)}
    results = []
    for node, meaning in results_of(module):
        if node is not None and isinstance(meaning, GradAOTOutput) and isinstance(meaning.grad_of, ParamAOTInput):
            parameter = fakes[placeholders[meaning.grad_of]]
            if storage_key(fakes[node]) in taken or not _laid_out_as(fakes[node], parameter):
                node = _copy_of(module, node, parameter, fakes)
        elif node is not None and isinstance(meaning, GradAOTOutput):
            if storage_key(fakes[node]) in taken - tangents:
                node = _copy_of(module, node, fakes[node], fakes)
            tangents.discard(storage_key(fakes[node]))  # of two inputs, one has the tangent's memory
        if node is not None:
            taken.add(storage_key(fakes[node]))
        results.append(node)
    output.args = (tuple(results),)
    module.recompile()


def _laid_out_as(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether autograd would keep the gradient as it is: strides as the parameter's, where sizes are not 1."""
    if not torch.ops.aten.is_non_overlapping_and_dense(parameter):
        return gradient.is_contiguous()
    sides = zip(gradient.shape, gradient.stride(), parameter.stride(), strict=True)
    return all(size == 1 or mine == theirs for size, mine, theirs in sides)


def _copy_of(module: GraphModule, node: Node, parameter: torch.Tensor, fakes: Fakes) -> Node:
    """The gradient in storage of its own, laid out as the parameter: its dimensions in order of falling strides."""
    dense = aten.is_non_overlapping_and_dense(parameter)
    order = sorted(range(parameter.dim()), key=lambda d: -parameter.stride(d)) if dense else range(parameter.dim())
    back = [list(order).index(d) for d in range(parameter.dim())]
    for target, given in (
        (aten.permute.default, list(order)),
        (aten.clone.default, None),
        (aten.permute.default, back),
    ):
        if given == sorted(given or []):
            continue  # nothing to permute
        kwargs: dict[str, Any] = {} if given else {"memory_format": torch.contiguous_format}
        at_the_end = node.op == "placeholder"  # inputs come before the forward pass
        graph = module.graph
        with graph.inserting_before(output_node(module)) if at_the_end else graph.inserting_after(node):
            made = graph.call_function(target, (node, given) if given else (node,), kwargs)
        made.meta = meta_of(node)
        fakes[made] = run_node(made, fakes)
        node = made
    return node


def meta_of(node: Node) -> dict[str, object]:
    """The origin of a node, for one that takes its place; its meaning as an input, which it may have, stays its own."""
    return {key: entry for key, entry in node.meta.items() if key != "desc"}
