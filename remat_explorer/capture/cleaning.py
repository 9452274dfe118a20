"""Rewrites of the functional joint graph that change no number and no peak.

In a functional graph no node writes to its inputs, so whatever only copies or renames can go.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

aten = torch.ops.aten
RENAMING = (aten.detach.default, aten.alias.default)
REMARKS = ("profiler._record_function", "aten._assert_", "aten.sym_constrain_range")


def clean(module: GraphModule) -> None:
    """Apply every rewrite below to ``module``, the joint graph, in place."""
    drop_remarks(module)
    drop_renaming(module)
    drop_same_layout_clones(module)
    module.graph.eliminate_dead_code()
    module.recompile()


def output_node(module: GraphModule) -> Node:
    """The node that lists the graph's results; its ``meta["desc"]`` tells their meaning."""
    return next(node for node in module.graph.nodes if node.op == "output")


def results_of(module: GraphModule) -> list[tuple[Node | None, Any]]:
    """Each result of the graph with its meaning, a descriptor; the node is None where there is nothing to return."""
    output = output_node(module)
    return list(zip(cast(list, output.args[0]), output.meta["desc"], strict=True))


def drop_remarks(module: GraphModule) -> None:
    """Remove calls that compute nothing: names given to the profiler, and assertions, which plain PyTorch makes too."""
    for node in reversed(module.graph.nodes):
        if node.op == "call_function" and str(node.target).startswith(REMARKS):
            module.graph.erase_node(node)


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
