"""From a model to its program: trace, clean, find storages, order, contract, name, and put a price on it."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._functorch._aot_autograd.descriptors import (
    BufferAOTInput,
    GradAOTOutput,
    InputMutationAOTOutput,
    ParamAOTInput,
    PlainAOTInput,
    PlainAOTOutput,
    TangentAOTInput,
)
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

from remat_explorer.capture.autocast import Autocast
from remat_explorer.capture.captured_program import Body, Input, Program, Registers, Result, bind_inputs
from remat_explorer.capture.cuda_target import CudaTarget
from remat_explorer.capture.devices import find_device
from remat_explorer.capture.generated_sources import drop_new_sources
from remat_explorer.capture.graph_assembly import (
    AROUND,
    MODULE_PATH,
    SOURCE_FILE,
    SOURCE_LINE,
    TRAINED,
    assemble,
    number_storages,
)
from remat_explorer.capture.graph_rewrites import (
    copy_out_of_large_storages,
    copy_shared_gradients,
    graph_results,
    is_random,
    rewrite_graph,
)
from remat_explorer.capture.implementations.alternatives import add_alternatives
from remat_explorer.capture.input_assumptions import Assumptions
from remat_explorer.capture.inputs_and_outputs import Loss, OutputStructure, named_inputs
from remat_explorer.capture.joint_trace import trace_joint
from remat_explorer.capture.model_checks import require_capturable
from remat_explorer.capture.operation_calls import bodies_of_choices, body_of, in_place_bodies, view_of
from remat_explorer.capture.operation_rewrites import contract_operations, hoist_constants, weight_gradients_first
from remat_explorer.capture.propagation import propagate
from remat_explorer.capture.sharded_parameters import share_out
from remat_explorer.capture.sharding import is_sharded, local_part, reshard, shard_groups
from remat_explorer.capture.storages import OperationDraft, Storages, find_storages
from remat_explorer.capture.trace_errors import explain_errors, explain_result
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.capture_options import OPTIMIZER_STATES, CaptureOptions
from remat_explorer.errors import CaptureError

_SMALL_BUFFER = 64 * 1024  # bytes of a new buffer content that may be computed after the plan instead of in it
_REQUIRING = "remat_explorer.requiring"  # key of a graph's meta: names of the buffers that require a gradient
_YOUNG = 100_000  # new objects from which on Python looks for garbage; a trace of 500 operations makes 150,000
_lock = threading.Lock()
_before: list[tuple[int, int, int]] = []  # thresholds, by each trace that runs


@contextlib.contextmanager
def _rarely_collected() -> Iterator[None]:
    """Look for garbage less often than Python would: nearly all objects of a trace stay. Not where that is off."""
    with _lock:
        young, *older = gc.get_threshold()
        _before.append((young, *older))  # type: ignore[reportArgumentType]
        if young:
            gc.set_threshold(max(young, _YOUNG), *older)
    try:
        yield
    finally:
        with _lock:
            first = _before[0]
            _before.pop()
            if not _before and gc.get_threshold()[0] == max(first[0], _YOUNG):  # else the person has set another
                gc.set_threshold(*first)


@_rarely_collected()
@drop_new_sources()
def trace(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str = "cpu",
    options: CaptureOptions | None = None,
    target: CudaTarget | None = None,
    like: Program | None = None,
) -> Program:
    """The program of one training step of ``model``: its graph, and how to run it.

    Arguments and errors are those of `remat_explorer.capture`; ``target`` is the device that the graph is made for
    without one, and such a program runs nowhere. Where a choice of operations depends on sizes alone, it is that of
    ``like``, the same step with inputs of other sizes.
    """
    options = options or CaptureOptions()
    require_capturable(model, args, kwargs, target is not None)
    if target is not None:
        _require_decidable(options)
    reshard(model)
    groups = shard_groups(model)
    step = TrainingStep(model, args, kwargs, loss)
    tensors = step.tensors(args, kwargs)
    joint = contextvars.copy_context().run(trace_joint, step, tensors, target)
    for node, path in joint.paths.items():
        node.meta[MODULE_PATH], node.meta[SOURCE_LINE] = path, joint.lines[node]
        node.meta[SOURCE_FILE], node.meta[AROUND] = joint.files[node], joint.around[node]
    joint.module.meta[TRAINED] = _trained_constants(joint.module)
    joint.module.meta[_REQUIRING] = [name for name, b in model.named_buffers() if b.requires_grad and b.is_leaf]
    rewrite_graph(joint.module, options)
    share_out(joint.module, groups)
    with explain_errors(model):
        fakes = propagate(joint.module, None if options.fake else _real_inputs(joint.module, model, tensors))
        copy_shared_gradients(joint.module, fakes)
        if options.contract:
            copy_out_of_large_storages(joint.module, fakes)
        storages = find_storages(joint.module, fakes)
    weight_gradients_first(storages)
    chosen = None if like is None else like.hoisted
    prologue, hoisted = hoist_constants(storages, chosen) if options.contract else ([], ())
    if options.contract:
        contract_operations(storages, options.implementations)
    epilogue = _take_epilogue(storages)
    if options.implementations:
        add_alternatives(storages, options.implementations, _content(joint.module, model), find_device(device))
    if not storages.operations:
        raise CaptureError(f"{type(model).__name__} has no operation that depends on its inputs: nothing to plan")
    storages.resident_bytes += _optimizer_bytes(model, options.optimizer)
    number = number_storages(storages)
    assert step.returned is not None  # it has been traced
    inputs = _inputs(joint.module)
    results = _results(storages, step.returned, inputs)
    return Program(
        assemble(type(model).__name__, storages, number, results, find_device(device), options),
        tuple(body_of(draft, storages, number) for draft in storages.operations),
        tuple(storage.carrier for storage in number),
        inputs,
        results,
        step.returned,
        _unnumbered(prologue, storages),
        _unnumbered(epilogue, storages),
        joint.module,
        storages.fakes,
        in_place_bodies(storages, number),
        bodies_of_choices(storages, number),
        Assumptions(joint.reads, [name for name, _ in named_inputs(args, kwargs)]),
        step.reads,
        step.changes,
        hoisted,
    )


def _trained_constants(module: GraphModule) -> dict[str, str]:
    """Names of tensors that require a gradient and are no inputs of the graph, with the line that reads each.

    What is only read detached is not trained.
    """
    found: dict[str, str] = {}
    for node in module.graph.nodes:
        held = getattr(module, str(node.target), None) if node.op == "get_attr" else None
        readers = [user for user in node.users if user.target is not torch.ops.aten.detach.default]
        if isinstance(held, torch.Tensor) and held.requires_grad and readers:
            found.setdefault(str(node.target), readers[0].meta.get(SOURCE_LINE) or "")
    return found


def _require_decidable(options: CaptureOptions) -> None:
    """Refuse what nobody knows without the device."""
    undecided = None
    if options.implementations:
        undecided = "which alternative implementations there are depends on what is installed beside the device"
    elif not options.fake:
        undecided = "fake=False runs every operator"
    elif Autocast.ambient().types:
        undecided = (
            "autocast is on, which casts other operations on CUDA than on the CPU; take a model in half precision, "
            "such as model.bfloat16()"
        )
    if undecided:
        raise CaptureError(f"a graph for CUDA cannot be made without a device so: {undecided}; or capture on a device")


def _content(module: GraphModule, model: nn.Module) -> Callable[[Any], torch.Tensor | None]:
    """The tensor of a parameter by its node, where it has one and content in it."""
    names = {entry.node: entry.name for entry in _inputs(module) if entry.kind == "parameter"}

    def content(node: Any) -> torch.Tensor | None:
        tensor = model.get_parameter(names[node]).detach() if node in names else None
        return None if tensor is None or isinstance(tensor, FakeTensor) or tensor.device.type == "meta" else tensor

    return content


def _unnumbered(drafts: list[OperationDraft], storages: Storages) -> tuple[Body, ...]:
    """Bodies of operations that are no part of the graph: their outputs are no values of it."""
    return tuple(body_of(draft, storages, {s: -1 - i for i, s in enumerate(draft.writes)}) for draft in drafts)


def _take_epilogue(storages: Storages) -> list[OperationDraft]:
    """Remove the operations that only count batches: small new buffer contents made from resident tensors alone."""
    buffers = {
        storages.of_node[node]
        for node, meaning in graph_results(storages.module)
        if node is not None and isinstance(meaning, InputMutationAOTOutput)
    }
    readers = storages.readers()
    taken = [
        draft
        for draft in storages.operations
        if not draft.reads
        and not is_random(draft.nodes)
        and sum(storage.bytes for storage in draft.writes) <= _SMALL_BUFFER
        and all(storage in buffers and storage not in readers for storage in draft.writes)
    ]
    storages.operations = [draft for draft in storages.operations if draft not in taken]
    return taken


def _real_inputs(module: GraphModule, model: nn.Module, tensors: tuple[torch.Tensor, ...]) -> Registers:
    registers = bind_inputs(_inputs(module), module, model, tensors)
    if any(isinstance(t, FakeTensor) or t.device.type == "meta" for t in registers.values()):
        raise CaptureError("fake=False needs real tensors, but an input or a weight has no content; take fake=True")
    return registers


def _inputs(module: GraphModule) -> tuple[Input, ...]:
    inputs = []
    for node in module.graph.nodes:
        meaning = node.meta.get("desc")
        if node.op == "get_attr":
            inputs.append(Input(node, "constant", str(node.target)))
        elif isinstance(meaning, ParamAOTInput):
            inputs.append(Input(node, "parameter", meaning.target))
        elif isinstance(meaning, BufferAOTInput):
            inputs.append(Input(node, "buffer", meaning.target))
        elif isinstance(meaning, PlainAOTInput):
            inputs.append(Input(node, "input", place=meaning.idx))
        elif isinstance(meaning, TangentAOTInput):
            inputs.append(Input(node, "tangent", place=_output_of(meaning, module)))
        elif node.op == "placeholder":
            raise CaptureError(f"the input {node.name!r} of the joint graph has the unknown meaning {meaning!r}")
    return tuple(inputs)


def _output_of(tangent: TangentAOTInput, module: GraphModule) -> int:
    if isinstance(tangent.output, InputMutationAOTOutput):
        raise explain_result(tangent.output, module.meta[_REQUIRING])
    if not isinstance(tangent.output, PlainAOTOutput):
        raise CaptureError(f"outputs share memory in a way that has no plan ({tangent.output}); return clones of them")
    return tangent.output.idx


def _results(storages: Storages, returned: OutputStructure, inputs: tuple[Input, ...]) -> tuple[Result, ...]:
    results = []
    meaning_of = {node.meta.get("desc"): node for node in storages.module.graph.nodes if node.op == "placeholder"}
    input_of = {entry.node: entry for entry in inputs}
    several = sum(isinstance(meaning, PlainAOTOutput) for _, meaning in graph_results(storages.module)) > 1
    for node, meaning in graph_results(storages.module):
        if node is None:
            continue
        views = view_of(node, storages)
        if isinstance(meaning, PlainAOTOutput):
            name = "loss" if returned.is_loss else f"output {meaning.idx}" if several else "output"
            results.append(Result(node, "output", name, views))
        elif isinstance(meaning, GradAOTOutput) and isinstance(meaning.grad_of, ParamAOTInput | PlainAOTInput):
            of = input_of[meaning_of[meaning.grad_of]]
            results.append(Result(node, "gradient", of.name or f"input tensor {of.place}", views, of))
        elif isinstance(meaning, InputMutationAOTOutput) and isinstance(meaning.mutated_input, BufferAOTInput):
            results.append(Result(node, "buffer", meaning.mutated_input.target, views))
        else:
            raise explain_result(meaning, storages.module.meta[_REQUIRING])
    if not any(result.kind == "gradient" for result in results):
        raise CaptureError(
            "what forward returns depends on tensors that require a gradient, but on no parameter of the model and on "
            "no input that does: forward computes with copies of them, such as torch.func.stack_module_state makes. "
            "Compute with the parameters themselves; torch.stack of those of several modules passes gradients on"
        )
    return tuple(results)


def _optimizer_bytes(model: nn.Module, optimizer: str | None) -> int:
    """State of an optimizer over the parameters that require a gradient, without what it takes while it steps."""
    if optimizer is None:
        return 0
    step = 4 if optimizer == "adam" else 0
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # of a sharded parameter those of one process, padding included, so that they are the same for each
    parts = (local_part(p).untyped_storage().nbytes() if is_sharded(p) else p.nbytes for p in trained)
    return sum(OPTIMIZER_STATES[optimizer] * part + step for part in parts)
