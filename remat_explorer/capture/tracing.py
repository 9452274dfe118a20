"""From a model to its program: trace, clean, find storages, contract, name, and put a price on it."""

from __future__ import annotations

import operator
from typing import Any

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
from torch.fx import Node

from remat_explorer import graph as graphs
from remat_explorer.capture.bodies import body_of, is_random, view_of
from remat_explorer.capture.checks import require_capturable
from remat_explorer.capture.cleaning import clean, results_of
from remat_explorer.capture.contraction import contract
from remat_explorer.capture.costs import roofline
from remat_explorer.capture.devices import Device, find_device
from remat_explorer.capture.explain import explain_result, explained
from remat_explorer.capture.joint import Joint, trace_joint
from remat_explorer.capture.losses import Loss
from remat_explorer.capture.naming import operation_name, unique
from remat_explorer.capture.program import Input, Program, Result
from remat_explorer.capture.step import TrainingStep
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages, find_storages
from remat_explorer.errors import CaptureError

SMALL_BUFFER = 64 * 1024  # bytes of a new buffer content that may be computed after the plan instead of in it


def trace(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    device: str = "cpu",
) -> Program:
    """The program of one training step of ``model``: its graph, and how to run it.

    Arguments and errors are those of `remat_explorer.capture`.
    """
    require_capturable(model, args, kwargs)
    step = TrainingStep(model, args, kwargs, loss)
    joint = trace_joint(step, step.tensors(args, kwargs))
    clean(joint.module)
    with explained(model):
        found = find_storages(joint.module)
    contract(found)
    epilogue = _take_epilogue(found)
    if not found.operations:
        raise CaptureError(f"{type(model).__name__} has no operation that depends on its inputs: nothing to plan")
    values = [storage for draft in found.operations for storage in draft.writes]
    number = {storage: v for v, storage in enumerate(values)}
    results = _results(found)
    return Program(
        _graph(type(model).__name__, found, joint, number, results, find_device(device)),
        tuple(body_of(draft, found, number) for draft in found.operations),
        tuple(storage.carrier for storage in values),
        _inputs(found),
        results,
        tuple(body_of(draft, found, {s: -1 - i for i, s in enumerate(draft.writes)}) for draft in epilogue),
        joint.module,
        found.fakes,
    )


def _take_epilogue(found: Storages) -> list[OperationDraft]:
    """Remove the operations that only count batches: small new buffer contents made from resident tensors alone."""
    buffers = {
        found.of_node[node]
        for node, meaning in results_of(found.module)
        if node is not None and isinstance(meaning, InputMutationAOTOutput)
    }
    readers = found.readers()
    taken = [
        draft
        for draft in found.operations
        if not draft.reads
        and not is_random(draft.nodes)
        and sum(storage.bytes for storage in draft.writes) <= SMALL_BUFFER
        and all(storage in buffers and storage not in readers for storage in draft.writes)
    ]
    found.operations = [draft for draft in found.operations if draft not in taken]
    return taken


def _inputs(found: Storages) -> tuple[Input, ...]:
    inputs = []
    for node in found.module.graph.nodes:
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
            inputs.append(Input(node, "tangent"))
        elif node.op == "placeholder":
            raise CaptureError(f"the input {node.name!r} of the joint graph has the unknown meaning {meaning!r}")
    return tuple(inputs)


def _results(found: Storages) -> tuple[Result, ...]:
    results = []
    for node, meaning in results_of(found.module):
        if node is None:
            continue
        views = view_of(node, found)
        if isinstance(meaning, PlainAOTOutput):
            results.append(Result(node, "loss", "loss", views))
        elif isinstance(meaning, GradAOTOutput) and isinstance(meaning.grad_of, ParamAOTInput):
            results.append(Result(node, "gradient", meaning.grad_of.target, views))
        elif isinstance(meaning, InputMutationAOTOutput) and isinstance(meaning.mutated_input, BufferAOTInput):
            results.append(Result(node, "buffer", meaning.mutated_input.target, views))
        else:
            raise explain_result(meaning)
    return tuple(results)


def _graph(
    name: str,
    found: Storages,
    joint: Joint,
    number: dict[StorageDraft, int],
    results: tuple[Result, ...],
    device: Device,
) -> graphs.Graph:
    weights = {
        node: found.fakes[node.args[2 if "backward" in node.name else 1]].dim()
        for node in joint.module.graph.nodes
        if str(node.target).startswith("aten.convolution")
    }
    meanings = {found.of_node[result.node]: _result_name(result) for result in results}
    titles = unique(
        operation_name(draft.calls, joint.paths, weights, [meanings.get(storage, "") for storage in draft.writes])
        for draft in found.operations
    )
    labels: list[str] = []
    for draft, title in zip(found.operations, titles, strict=True):
        plain = [storage for storage in draft.writes if storage not in meanings]
        for storage in draft.writes:
            numbered = f"{title} [{_output_number(storage.carrier)}]" if len(plain) > 1 else title
            labels.append(meanings.get(storage, numbered))
    operations = [
        graphs.operation(
            title,
            "backward" if draft.backward else "forward",
            sorted(number[storage] for storage in draft.reads),
            sorted(number[storage] for storage in draft.writes),
            roofline(draft.calls, found.fakes, device),
            max(0, draft.discarded),
        )
        for draft, title in zip(found.operations, titles, strict=True)
    ]
    entries = zip(unique(labels), number, strict=True)
    return graphs.Graph(
        name,
        tuple(graphs.Value(label, storage.bytes, storage.persistent) for label, storage in entries),
        tuple(operations),
        found.resident_bytes,
    )


def _result_name(result: Result) -> str:
    return {"loss": "loss", "gradient": f"{result.name}.grad", "buffer": f"{result.name} (new)"}[result.kind]


def _output_number(carrier: Node) -> int:
    return carrier.args[1] if carrier.target is operator.getitem else 0  # type: ignore[return-value]
