"""Rewrites of the functional joint graph that change no number and raise no peak.

In a functional graph no node writes to its inputs, so whatever only copies or renames can go.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, ParamAOTInput
from torch.fx import GraphModule, Node

aten = torch.ops.aten
RENAMING = (aten.detach.default, aten.alias.default)


def clean(module: GraphModule, parameters: dict[str, int]) -> None:
    """Apply every rewrite below to ``module``.

    Args:
        module: the joint graph, changed in place.
        parameters: for each parameter name the identity of its tensor; tied parameters share one.
    """
    add_tied_gradients(module, parameters)
    drop_renaming(module)
    drop_same_layout_clones(module)
    mask_hardtanh_by_result(module)
    module.graph.eliminate_dead_code()
    module.recompile()


def output_node(module: GraphModule) -> Node:
    """The node that lists the graph's results; its ``meta["desc"]`` tells their meaning."""
    return next(node for node in module.graph.nodes if node.op == "output")


def results_of(module: GraphModule) -> list[tuple[Node | None, Any]]:
    """Each result of the graph with its meaning, a descriptor; the node is None where there is nothing to return."""
    output = output_node(module)
    return list(zip(cast(list, output.args[0]), output.meta["desc"], strict=True))


def drop_renaming(module: GraphModule) -> None:
    """Remove detach and alias: they name the same storage, and autograd is already explicit in the graph."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in RENAMING:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)


def drop_same_layout_clones(module: GraphModule) -> None:
    """Remove clones with the layout of their source: nobody writes to either, so one storage can serve both.

    Clones that are results of the graph stay: a result must not share its storage with something that lives on.
    """
    results = set(output_node(module).all_input_nodes)
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target is not aten.clone.default or node in results:
            continue
        source, copy = node.args[0].meta["val"], node.meta["val"]
        if (
            source.stride() == copy.stride()
            and source.storage_offset() == copy.storage_offset()
            and source.untyped_storage().nbytes() == copy.untyped_storage().nbytes()
        ):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)


def mask_hardtanh_by_result(module: GraphModule) -> None:
    """Let the backward of hardtanh (ReLU6 is one) read the result instead of the input.

    The two leave the open interval between the limits at the same elements, so the gradient is the same bit for bit,
    and the input need not be kept. Eager does so where hardtanh is in place; ReLU always has it.
    """
    results: dict[tuple[Any, ...], Node] = {}
    for node in module.graph.nodes:
        if node.target is aten.hardtanh.default:
            results[_source_and_limits(*node.args)] = node
        elif node.target is aten.hardtanh_backward.default:
            gradient, *arguments = node.args
            result = results.get(_source_and_limits(*arguments))
            if result is not None:
                node.args = (gradient, result, *arguments[1:])


def _source_and_limits(source: Node, least: float = -1, most: float = 1) -> tuple[Any, ...]:
    return source, least, most


def add_tied_gradients(module: GraphModule, parameters: dict[str, int]) -> None:
    """Sum the gradients of a parameter with several names under its first name.

    The export gives one gradient per name. Eager adds them when they arrive, and that addition takes memory, so it
    must be an operation of the graph.
    """
    output = output_node(module)
    results = [node for node, _ in results_of(module)]
    first: dict[int, int] = {}
    for place, (_, meaning) in enumerate(results_of(module)):
        if not (isinstance(meaning, GradAOTOutput) and isinstance(meaning.grad_of, ParamAOTInput)):
            continue
        if results[place] is None:
            continue
        keeper = first.setdefault(parameters[meaning.grad_of.target], place)
        if keeper == place:
            continue
        terms = cast(tuple[Node, Node], (results[keeper], results[place]))
        with module.graph.inserting_before(output):
            total = module.graph.call_function(aten.add.Tensor, terms)
        total.meta = {key: terms[0].meta[key] for key in ("val", "seq_nr", "partitioner_tag") if key in terms[0].meta}
        results[keeper], results[place] = total, None
    output.args = (tuple(results),)
