"""From the joint graph of AOTAutograd to our graph and what its operations call, without a second capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._functorch._aot_autograd.utils import _is_primal, _is_tangent
from torch.fx import GraphModule, Node

from remat_explorer.capture.bodies import body_of, in_place_bodies, view_of
from remat_explorer.capture.captured_program import Body, Program
from remat_explorer.capture.devices import find_device
from remat_explorer.capture.graph_assembly import assemble, numbered
from remat_explorer.capture.graph_rewrites import graph_results, is_random, output_node, rewrite_graph
from remat_explorer.capture.inputs_and_outputs import OutputStructure
from remat_explorer.capture.operation_rewrites import contract, weight_gradients_first
from remat_explorer.capture.propagation import fake_mode, propagate
from remat_explorer.capture.storages import Storages, find_storages
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.compiled.fused_operations import as_kernels, join_fused

aten = torch.ops.aten
_BATCH_NORM = (  # whose results do not depend on the running statistics that they also read
    aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update_functional.default,
)


@dataclass(frozen=True, eq=False)
class Ending:
    """A result of the joint graph: a node read through views of what is in memory, or None; and its descriptor."""

    node: Node | None
    views: Body
    meaning: Any


@dataclass(frozen=True, eq=False)
class JointProgram:
    """A joint graph as a program.

    Attributes:
        program: operations and what they call; it has no results of its own.
        primals, tangents: the placeholders, in order.
        forward, backward: the results of each pass, in order.
        writes: new contents of inputs, which the forward pass writes in its end.
        random_state: a FakeTensor of the generator's state, or None where nothing is random.
    """

    program: Program
    primals: tuple[Node, ...]
    tangents: tuple[Node, ...]
    forward: tuple[Ending, ...]
    backward: tuple[Ending, ...]
    writes: tuple[tuple[Node, Ending], ...]
    random_state: torch.Tensor | None


def joint_program(module: GraphModule, forward_results: int, in_place: bool = True) -> JointProgram:
    """Our graph of a joint graph, with costs predicted for the device on which its tensors lie.

    Resident bytes are those of all inputs: parameters, buffers, the batch and the gradients of the outputs; and of a
    generator state for each random operation, which is kept if the operation is repeated.

    Args:
        module: the joint graph; it is changed.
        forward_results: how many of its results, from the first on, are of the forward pass.
        in_place: whether calls write over what dies. If not, the graph is for a compiler of functional graphs, which
            does that and makes kernels of calls: operations are what it is expected to run in one kernel.

    Raises:
        ExecutionError: if sizes are symbolic, or the graph has parts that are no tensors.
        CaptureError: if an operator gives a mixture of new and old storages.
    """
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    _require_plannable(module, placeholders)
    for node in placeholders:
        if _is_tangent(node):
            node.meta["partitioner_tag"] = "is_backward"
    written = _without_writes(module)
    options = CaptureOptions(contract=in_place)
    rewrite_graph(module, options)
    _mark_backward(module, forward_results)
    storages = find_storages(module, propagate(module))
    weight_gradients_first(storages)
    if in_place:
        contract(storages)
    else:
        join_fused(storages)
    _keep_seeds(storages)
    _require_unwritten(storages, [node for node, _ in written])
    random = [draft for draft in storages.operations if is_random(draft.nodes)]
    state, size = None, torch.get_rng_state().nbytes
    if random:
        with fake_mode(module):
            state = torch.empty(size, dtype=torch.uint8)
        storages.resident_bytes += len(random) * size
    endings = [
        Ending(node, Body(()) if node is None else view_of(node, storages), meaning)
        for node, meaning in graph_results(module)
    ]
    kept = len(endings) - len(written)
    number = numbered(storages)
    device = next((n.meta["val"].device for n in placeholders if n.meta["val"].numel()), torch.device("cpu"))
    graph = assemble("compiled", storages, number, (), find_device("cpu" if device.type == "cpu" else "A100"), options)
    if not in_place:
        graph = as_kernels(graph, storages, number)
    program = Program(
        graph,
        tuple(body_of(draft, storages, number) for draft in storages.operations),
        tuple(storage.carrier for storage in number),
        (),
        (),
        OutputStructure(None, False),
        (),
        (),
        module,
        storages.fakes,
        in_place_bodies(storages, number) if in_place else {},
    )
    return JointProgram(
        program,
        tuple(node for node in placeholders if _is_primal(node)),
        tuple(node for node in placeholders if _is_tangent(node)),
        tuple(endings[:forward_results]),
        tuple(endings[forward_results:kept]),
        tuple((node, ending) for (node, _), ending in zip(written, endings[kept:], strict=True)),
        state,
    )


def _require_plannable(module: GraphModule, placeholders: Sequence[Node]) -> None:
    for node in placeholders:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or any(not isinstance(size, int) for size in value.shape):
            raise ExecutionError(
                f"the input {node.name!r} of the compiled graph is {value!r}: a plan is for fixed sizes; compile with "
                "dynamic=False, which plans for each size that comes"
            )
        if not (_is_primal(node) or _is_tangent(node)):
            raise ExecutionError(
                f"the compiled graph has the input {node.name!r}, which is neither a tensor of the model nor a "
                "gradient; switch torch._functorch.config.functionalize_rng_ops off"
            )
    for node in module.graph.nodes:
        if node.op == "get_attr" and not isinstance(getattr(module, str(node.target), None), torch.Tensor):
            raise ExecutionError(
                f"the compiled graph has a graph in itself, {node.name!r}, as control flow and flex_attention make "
                "one; a plan takes models without"
            )


def _mark_backward(module: GraphModule, forward_results: int) -> None:
    """Mark constants that a decomposed backward operation makes: they depend on no gradient, but stand behind one."""
    results = cast(Any, output_node(module).args[0])
    forward, waiting = set(), [node for node in results[:forward_results] if node is not None]
    while waiting:
        node = waiting.pop()
        if node not in forward:
            forward.add(node)
            waiting += node.all_input_nodes
    begun, gradients = False, {node for node in module.graph.nodes if node.op == "placeholder" and _is_tangent(node)}
    for node in module.graph.nodes:
        if node.op == "call_function" and node not in forward:
            begun = begun or not gradients.isdisjoint(node.all_input_nodes)
            if begun:
                node.meta["partitioner_tag"] = "is_backward"


def _without_writes(module: GraphModule) -> list[tuple[Node, Node]]:
    """Take the writes to inputs out of the graph, and make what they write results, after all others."""
    writes = [node for node in module.graph.nodes if node.target is aten.copy_.default]
    output = output_node(module)
    given = list(cast(Any, output.args[0]))
    pairs = [cast(tuple[Node, Node], (node.args[0], node.args[1])) for node in writes]
    for node in writes:
        given = [node.args[1] if entry is node else entry for entry in given]
        node.replace_all_uses_with(cast(Node, node.args[1]))
        module.graph.erase_node(node)
    results = (*given, *(source for _, source in pairs))
    output.args = (results,)
    meanings = list(output.meta.get("desc", ()))
    output.meta["desc"] = [*meanings, *[None] * (len(results) - len(meanings))]
    return pairs


def _keep_seeds(storages: Storages) -> None:
    """Inductor draws with seeds, which are drawn once: what they make may be made again."""
    for draft in storages.operations:
        if any("inductor_seed" in str(node.target) for node in draft.nodes):
            for storage in draft.writes:
                storage.persistent = True


def _require_unwritten(storages: Storages, written: Sequence[Node]) -> None:
    """Refuse to repeat what reads an input that the forward pass writes to: keep it instead."""
    changed = {storages.of_node[node] for node in written}
    for draft in storages.operations:
        reads = {storages.of_node[source] for node in draft.calls for source in node.all_input_nodes}
        if reads & changed and not all(node.target in _BATCH_NORM for node in draft.calls[:1]):
            for storage in draft.writes:
                storage.persistent = True
