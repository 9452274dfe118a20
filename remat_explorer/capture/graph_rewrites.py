"""Rewrites of the functional joint graph that change no number.

In a functional graph no node writes to its inputs, so whatever only copies or renames can go (`rewrite_graph`). Each
gradient of a parameter gets memory of its own, as autograd would leave it (`copy_shared_gradients`). A result that its
kernel leaves in a storage much larger than itself is copied out, so that the storage can go
(`copy_out_of_large_storages`): the mean of `mse_loss` lies in the memory of all squares, and as a loss it stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, ParamAOTInput, TangentAOTInput
from torch.fx import GraphModule, Node

from remat_explorer.capture.in_place_layouts import keep_written_layouts, written_in_layout
from remat_explorer.capture.propagation import Fakes, record_again, run_node, storage_key, tensors_of
from remat_explorer.capture_options import CaptureOptions

aten = torch.ops.aten
_RENAMING = (aten.detach.default, aten.alias.default)
_NORMALIZATIONS = {  # the place of the argument that says whether statistics are those of the batch
    aten.native_batch_norm_backward.default: 7,
    aten.batch_norm_backward.default: 7,
    aten.cudnn_batch_norm_backward.default: None,  # they always are
}
_REMARKS = ("profiler._record_function", "aten._assert_", "aten.sym_constrain_range")


def rewrite_graph(module: GraphModule, options: CaptureOptions) -> None:
    """Apply the rewrites below to ``module``, as far as ``options`` ask for them."""
    _drop_remarks(module)
    _drop_renaming(module)
    keep_written_layouts(module)
    _resolve_conjugates(module)
    _drop_running_statistics(module)
    if options.contract:
        _drop_same_layout_clones(module)
        _mask_hardtanh_by_result(module)
        _share_constants(module)
    if options.split_convolution_backward:
        split_convolution_backward(module)
    module.graph.eliminate_dead_code()
    module.recompile()


def output_node(module: GraphModule) -> Node:
    """The node that lists the graph's results; its ``meta["desc"]`` tells their meaning."""
    return next(node for node in module.graph.nodes if node.op == "output")


def graph_results(module: GraphModule) -> list[tuple[Node | None, Any]]:
    """Each result of the graph with its meaning, a descriptor; the node is None where there is nothing to return."""
    output = output_node(module)
    return list(zip(cast(list, output.args[0]), output.meta["desc"], strict=True))


def _drop_remarks(module: GraphModule) -> None:
    """Remove calls that compute nothing: names given to the profiler, and assertions, which plain PyTorch makes too."""
    for node in reversed(module.graph.nodes):
        if node.op == "call_function" and str(node.target).startswith(_REMARKS):
            module.graph.erase_node(node)


def _drop_renaming(module: GraphModule) -> None:
    """Remove detach and alias: they name the same storage, and autograd is already explicit in the graph."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in _RENAMING:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)


def _resolve_conjugates(module: GraphModule) -> None:
    """Take the parts of complex numbers that are computed: a product may be left as a conjugate, as no trace sees."""
    for node in module.graph.nodes:
        if node.target is aten.view_as_real.default:
            node.target = view_as_real


def view_as_real(x: torch.Tensor) -> torch.Tensor:
    """The parts of complex numbers: a view of ``x``, unless that is a conjugate which is still to be computed."""
    return aten.view_as_real.default(x.resolve_conj())


def _drop_running_statistics(module: GraphModule) -> None:
    """Let the gradient of a batch normalization in training mode take no running statistics: its kernels read none.

    Autograd passes the new ones. A plan that runs the normalization again in its backward pass reads those of before
    the step, and would hold both.
    """
    for node in module.graph.nodes:
        if node.target in _NORMALIZATIONS:
            place = _NORMALIZATIONS[node.target]
            if place is None or node.args[place]:
                node.args = (*node.args[:3], None, None, *node.args[5:])
                record_again(node)


def _drop_same_layout_clones(module: GraphModule) -> None:
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


def _mask_hardtanh_by_result(module: GraphModule) -> None:
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


def _share_constants(module: GraphModule) -> None:
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
        record_again(weight)
        record_again(source)
        for picked in before:
            picked.update_arg(0, weight if picked.args[1] else source)
        module.graph.erase_node(node)


def copy_shared_gradients(module: GraphModule, fakes: Fakes) -> None:
    """Copy a gradient that shares memory with an input or another result, or is not laid out as its parameter is.

    The export returns such gradients as they come: of ``a + b`` one tensor for both, of ``x.sum()`` one number seen as
    many. Autograd's AccumulateGrad copies them, so that writing to one ``.grad`` changes no other.

    The gradient of an input goes on to what the input comes from. It may have any layout, and may be that of an output
    (a tangent), as in plain PyTorch; it is copied where it shares memory with anything else.
    """
    output = output_node(module)
    placeholders = {node.meta["desc"]: node for node in module.graph.nodes if node.op == "placeholder"}
    given = [node for node in module.graph.nodes if node.op in ("placeholder", "get_attr")]
    taken = {storage_key(fakes[node]) for node in given}
    tangents = {storage_key(fakes[node]) for node in given if isinstance(node.meta.get("desc"), TangentAOTInput)}
    results = []
    for node, meaning in graph_results(module):
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
        made.meta = _meta_of(node)
        fakes[made] = run_node(made, fakes)
        node = made
    return node


def _meta_of(node: Node) -> dict[str, object]:
    """The origin of a node, for one that takes its place; its meaning as an input, which it may have, stays its own."""
    return {key: entry for key, entry in node.meta.items() if key != "desc"}


_LEAVING_ROOM = (
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
    aten.binary_cross_entropy.default,
    aten.col2im.default,
)
_LEAST = 2  # times its own bytes; with less to win, a copy is not worth its time


def copy_out_of_large_storages(module: GraphModule, fakes: Fakes) -> None:
    """Insert a copy after every such call."""
    for node in list(module.graph.nodes):
        if node.target not in _LEAVING_ROOM or not _leaves_room(fakes[node]):
            continue
        with module.graph.inserting_after(node):
            copied = module.graph.call_function(aten.clone.default, (node,))
        node.replace_all_uses_with(copied, delete_user_cb=lambda user, copied=copied: user is not copied)
        copied.meta = _meta_of(node)
        fakes[copied] = run_node(copied, fakes)
        _see_the_copy(copied, fakes)
    module.recompile()


def _see_the_copy(copied: Node, fakes: Fakes) -> None:
    """Views of what was copied are views of the copy."""
    before = storage_key(fakes[copied.args[0]])  # type: ignore[index]
    seen = [copied]
    for node in seen:
        for user in node.users:
            if user in fakes and before in {storage_key(tensor) for tensor in tensors_of(fakes[user])}:
                fakes[user] = run_node(user, fakes)
                seen.append(user)


def is_copy_of(node: Node, source: Node) -> bool:
    """Whether ``node`` is what `copy_out_of_large_storages` has inserted after ``source``."""
    return node.target is aten.clone.default and node.args == (source,) and source.target in _LEAVING_ROOM


def _leaves_room(fake: Any) -> bool:
    return fake.untyped_storage().nbytes() >= _LEAST * max(1, fake.numel()) * fake.element_size()


def is_random(nodes: Iterable[Node]) -> bool:
    """Whether a call among ``nodes`` draws from the random number generator."""
    return any(_draws(node) for node in nodes)


@functools.cache
def state_bytes(kind: str) -> int:
    """Bytes of the tensor in which PyTorch hands out the state of a generator, each time that it is asked for.

    It is there for a moment before an operation that draws runs, or runs again. On CUDA a state is two numbers.

    >>> state_bytes("cuda"), state_bytes("cpu") > 0
    (0, True)
    """
    return 0 if kind == "cuda" else torch.get_rng_state().nbytes


def _draws(node: Node) -> bool:
    target: Any = node.args[0] if node.target is written_in_layout else node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":  # attention draws only if it drops something
            given = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return bool(given)
    return True
