"""Rewrites of the functional joint graph that change no number.

In a functional graph no node writes to its inputs, so whatever only copies or renames can go.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from remat_explorer.capture.joint.propagation import note_again
from remat_explorer.capture.joint.randomness import is_random
from remat_explorer.capture.joint.written_layouts import keep_written_layouts
from remat_explorer.capture_options import CaptureOptions

aten = torch.ops.aten
RENAMING = (aten.detach.default, aten.alias.default)
NORMALIZATIONS = {  # the place of the argument that says whether statistics are those of the batch
    aten.native_batch_norm_backward.default: 7,
    aten.batch_norm_backward.default: 7,
    aten.cudnn_batch_norm_backward.default: None,  # they always are
}
REMARKS = ("profiler._record_function", "aten._assert_", "aten.sym_constrain_range")


def clean(module: GraphModule, options: CaptureOptions) -> None:
    """Apply the rewrites below to ``module``, as far as ``options`` ask for them."""
    drop_remarks(module)
    drop_renaming(module)
    keep_written_layouts(module)
    resolve_conjugates(module)
    drop_running_statistics(module)
    if options.contract:
        drop_same_layout_clones(module)
        mask_hardtanh_by_result(module)
        share_constants(module)
    if options.split_convolution_backward:
        split_convolution_backward(module)
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


def resolve_conjugates(module: GraphModule) -> None:
    """Take the parts of complex numbers that are computed: a product may be left as a conjugate, as no trace sees."""
    for node in module.graph.nodes:
        if node.target is aten.view_as_real.default:
            node.target = view_as_real


def view_as_real(x: torch.Tensor) -> torch.Tensor:
    """The parts of complex numbers: a view of ``x``, unless that is a conjugate which is still to be computed.

    >>> view_as_real(torch.tensor([1 + 2j]).conj()).tolist()
    [[1.0, -2.0]]
    """
    return aten.view_as_real.default(x.resolve_conj())


def drop_running_statistics(module: GraphModule) -> None:
    """Let the gradient of a batch normalization in training mode take no running statistics: its kernels read none.

    Autograd passes the new ones. A plan that runs the normalization again in its backward pass reads those of before
    the step, and would hold both.
    """
    for node in module.graph.nodes:
        if node.target in NORMALIZATIONS:
            place = NORMALIZATIONS[node.target]
            if place is None or node.args[place]:
                node.args = (*node.args[:3], None, None, *node.args[5:])
                note_again(node)


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
    and the input need not be kept. Eager does so where hardtanh is in place; ReLU always has it. Where something else
    reads the input, too, it may have to be kept anyway, and the result would be kept beside it: that is left alone.
    """
    results: dict[tuple[Any, ...], Node] = {}
    for node in module.graph.nodes:
        if node.target is aten.hardtanh.default:
            results[_source_and_limits(*node.args)] = node
        elif node.target is aten.hardtanh_backward.default:
            gradient, *arguments = node.args
            result = results.get(_source_and_limits(*arguments))
            if result is not None and set(arguments[0].users) == {result, node}:
                node.args = (gradient, result, *arguments[1:])


def _source_and_limits(source: Node, least: float = -1, most: float = 1) -> tuple[Any, ...]:
    return source, least, most


def share_constants(module: GraphModule) -> None:
    """Make equal constants once: a causal mask that each layer makes for itself, for example.

    Nothing is lost: whoever made the second one anew may as well make the first one anew.
    """
    first: dict[tuple[object, str, str], Node] = {}
    constant: set[Node] = set()
    for node in list(module.graph.nodes):
        if node.op == "get_attr":
            constant.add(node)
        elif node.op == "call_function" and constant.issuperset(node.all_input_nodes) and not is_random([node]):
            constant.add(node)
            keeper = first.setdefault((node.target, str(node.args), str(node.kwargs)), node)
            if keeper is not node:
                node.replace_all_uses_with(keeper)
                module.graph.erase_node(node)


def split_convolution_backward(module: GraphModule) -> None:
    """Compute the input gradient of a convolution apart from its weight and bias gradients.

    The kernels are apart anyway, so both are bit for bit what the joint call gives. The weight gradient comes first:
    after it the convolution's input may go, before the input gradient, which is as large, is made.

    Source: MONeT (Shah et al., ICLR 2021), appendix C, where the two gradients are operators of their own.
    """
    for node in list(module.graph.nodes):
        if node.target is not aten.convolution_backward.default:
            continue
        *arguments, (to_input, to_weight, to_bias) = node.args
        if not to_input or not (to_weight or to_bias):
            continue
        before, value = list(node.users), node.meta["val"]
        with module.graph.inserting_before(node):
            weight = module.graph.call_function(node.target, (*arguments, [False, to_weight, to_bias]))
            source = module.graph.call_function(node.target, (*arguments, [True, False, False]))
        weight.meta = {**node.meta, "val": (None, value[1], value[2])}
        source.meta = {**node.meta, "val": (value[0], None, None)}
        note_again(weight)
        note_again(source)
        for picked in before:
            picked.update_arg(0, weight if picked.args[1] else source)
        module.graph.erase_node(node)
