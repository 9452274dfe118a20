"""The calls of an operation: its own or another implementation's, the views through which it reads, what goes when.

`body_of`, `in_place_bodies` and `bodies_of_choices` make bodies; `reads_of`, `writes_of` and `overwritten_by` say what
an implementation does to storages.

Batch normalization on CUDA is cuDNN's in plain PyTorch. While torch traces, it replaces cuDNN's operator, which changes
running statistics that its schema does not name, by its own (``torch/_decomp/decompositions.py``). The last digits
differ, and a deep network makes much of them: so a plan runs cuDNN's wherever plain PyTorch would.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.captured_program import Body, Call, CapturedImplementation
from remat_explorer.capture.fake_tensors import traced_kernel
from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.in_place import IN_PLACE, covers, takeover_of
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages

aten = torch.ops.aten
Tensor = torch.Tensor
BY_CUDNN = torch._C._BatchNormBackend.Cudnn  # type: ignore[attr-defined]


def body_of(draft: OperationDraft, storages: Storages, number: Mapping[StorageDraft, int]) -> Body:
    """The body of an operation.

    Args:
        draft: the operation after contraction.
        storages: the graph it belongs to.
        number: value id of each storage.
    """
    targets = [IN_PLACE[node.target] if node in draft.in_place else _kernel_of(node) for node in draft.nodes]  # type: ignore[index]
    calls = [Call(node, target) for node, target in zip(draft.nodes, targets, strict=True)]
    return _body(calls, draft.writes, is_random(draft.nodes), storages, number)


def _body(
    calls: list[Call],
    writes: Iterable[StorageDraft],
    random: bool,
    storages: Storages,
    number: Mapping[StorageDraft, int],
) -> Body:
    outputs = {number[storage]: storage.carrier for storage in writes}
    calls = _with_views(calls, storages)
    last_read = {call.node: i for i, call in enumerate(calls)}  # at first: the call itself, for results nobody reads
    made = set(last_read)
    last_read |= {source: i for i, call in enumerate(calls) for source in call.sources}
    frees: list[list[Node]] = [[] for _ in calls]
    for node in made.difference(outputs.values()):
        frees[last_read[node]].append(node)
    pairs = zip(calls, frees, strict=True)
    ordered = tuple(
        dataclasses.replace(call, frees=tuple(sorted(f, key=storages.order.__getitem__))) for call, f in pairs
    )
    return Body(ordered, outputs, random)


def in_place_bodies(storages: Storages, number: Mapping[StorageDraft, int]) -> dict[int, Body]:
    """For every operation that may overwrite an input, by its place, the body that does."""
    bodies: dict[int, Body] = {}
    readers = storages.readers()
    for k, draft in enumerate(storages.operations):
        takeover = takeover_of(draft, storages, readers)
        if takeover is None:
            continue
        plain, first = body_of(draft, storages, number), draft.nodes[0]
        calls = tuple(
            dataclasses.replace(call, target=takeover.call) if call.node is first else call for call in plain.calls
        )
        bodies[k] = dataclasses.replace(plain, calls=calls, overwrites=takeover.storage.carrier)
    return bodies


def bodies_of_choices(
    storages: Storages, number: Mapping[StorageDraft, int]
) -> dict[tuple[int, int], tuple[Body, Body | None]]:
    """The bodies of alternative implementations, by operation and number (2 is the first after the default one).

    The second body of each overwrites an input; it is None where the implementation does not.
    """
    bodies: dict[tuple[int, int], tuple[Body, Body | None]] = {}
    for k, draft in enumerate(storages.operations):
        for code, way in enumerate(draft.ways, start=2):
            writes, taken = writes_of(draft, way, storages), overwritten_by(draft, way, storages)
            beside = _body(_calls_of(draft, way), writes, is_random(draft.nodes), storages, number)
            over = None
            if taken is not None:
                over = _body(_calls_of(draft, way, over=True), writes, beside.random, storages, number)
                over = dataclasses.replace(over, overwrites=taken.carrier)
            bodies[k, code] = beside, over
    return bodies


def view_of(node: Node, storages: Storages) -> Body:
    """The views that lead from what is kept in memory to ``node``."""
    if _is_kept(node, storages):
        return Body(())
    return Body(tuple(_with_views([Call(node, node.target)], storages)))  # type: ignore[arg-type]


def _is_kept(node: Node, storages: Storages) -> bool:
    return node.op != "call_function" or (node in storages.of_node and storages.of_node[node].carrier is node)


def _with_views(calls: list[Call], storages: Storages) -> list[Call]:
    """``calls`` and the views through which they read what is kept in memory, in graph order."""
    needed = {call.node: call for call in calls}
    waiting = list(calls)
    while waiting:
        for source in waiting.pop().sources:
            if source not in needed and not _is_kept(source, storages):
                needed[source] = Call(source, source.target)  # type: ignore[arg-type]
                waiting.append(needed[source])
    return sorted(needed.values(), key=lambda call: storages.order[call.node])


def _kernel_of(node: Node) -> Callable[..., Any]:
    """What runs for a call: its target, or a function that calls the kernel of plain PyTorch."""
    if node.target in _BY_CUDNN and is_by_cudnn(*_arguments(node)):
        return _BY_CUDNN[node.target]  # type: ignore[index]
    return traced_kernel(node)


def is_by_cudnn(
    source: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None,
    training: bool, epsilon: float,
) -> bool:  # fmt: skip
    """Whether plain PyTorch normalizes such tensors by cuDNN, with nothing reserved for the backward pass.

    What cuDNN reserves is no value of the graph, so it is asked.
    """
    if source.device.type != "cuda" or weight is None or bias is None or not torch.cuda.is_available():
        return False
    if not all(isinstance(size, int) for size in source.shape):
        return False  # cuDNN needs to know it
    torch_c: Any = torch._C
    running = (weight, weight) if mean is None and training else (mean, variance)  # as good as none in training
    if torch_c._select_batch_norm_backend(source, weight, bias, *running, training, epsilon) != BY_CUDNN:
        return False
    return not training or not torch_c._get_cudnn_batch_norm_reserve_space_size(source, True)


def _arguments(node: Node) -> tuple[Any, ...]:
    """The arguments of `is_by_cudnn` for a call of one of `_BY_CUDNN`, as FakeTensors."""
    args: Any = map_arg(node.args, lambda source: source.meta["val"])
    if node.target is aten.native_batch_norm_backward.default:
        _, source, weight, mean, variance, _, _, training, epsilon, _ = args
        bias = weight if training else None  # it has no part in the gradients; cuDNN has those of training only
        return source, weight, bias, mean, variance, training, epsilon
    if node.target is aten._native_batch_norm_legit.no_stats:
        source, weight, bias, training, _, epsilon = args
        return source, weight, bias, None, None, training, epsilon
    if node.target is aten._native_batch_norm_legit_no_training.default:
        return *args[:5], False, args[-1]
    return *args[:6], args[-1]


def batch_norm(
    source: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor,
    training: bool, momentum: float, epsilon: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """``_native_batch_norm_legit_functional`` by cuDNN: output, statistics of the batch, running ones."""
    mean, variance = mean.clone(), variance.clone()
    made = aten.cudnn_batch_norm.default(source, weight, bias, mean, variance, training, momentum, epsilon)
    return *made[:3], mean, variance


def batch_norm_without_running_statistics(
    source: Tensor, weight: Tensor, bias: Tensor, training: bool, momentum: float, epsilon: float
) -> tuple[Tensor, ...]:
    """``_native_batch_norm_legit.no_stats`` by cuDNN: output, statistics of the batch."""
    return aten.cudnn_batch_norm.default(source, weight, bias, None, None, training, momentum, epsilon)[:3]


def batch_norm_in_evaluation(
    source: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, momentum: float, epsilon: float
) -> tuple[Tensor, ...]:
    """``_native_batch_norm_legit_no_training`` by cuDNN: output, and two tensors without entries."""
    return aten.cudnn_batch_norm.default(source, weight, bias, mean, variance, False, momentum, epsilon)[:3]


def batch_norm_backward(
    gradient: Tensor, source: Tensor, weight: Tensor, running_mean: Tensor | None, running_variance: Tensor | None,
    mean: Tensor, deviation: Tensor, training: bool, epsilon: float, wanted: list[bool],
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """``native_batch_norm_backward`` of a training step by cuDNN: gradients of input, weight and bias."""
    gradient = gradient.contiguous(memory_format=suggest_memory_format(source))
    nothing = source.new_empty(0, dtype=torch.uint8)
    running, saved = (running_mean, running_variance), (mean, deviation)
    made = aten.cudnn_batch_norm_backward.default(source, gradient, weight, *running, *saved, epsilon, nothing)
    return tuple(tensor if asked else None for tensor, asked in zip(made, wanted, strict=True))


_BY_CUDNN: dict[Any, Callable[..., Any]] = {
    aten._native_batch_norm_legit_functional.default: batch_norm,
    aten._native_batch_norm_legit.no_stats: batch_norm_without_running_statistics,
    aten._native_batch_norm_legit_no_training.default: batch_norm_in_evaluation,
    aten.native_batch_norm_backward.default: batch_norm_backward,
}


def _calls_of(draft: OperationDraft, way: CapturedImplementation, over: bool = False) -> list[Call]:
    """Everything that an implementation calls, views aside, in order; ``over`` if it overwrites what it may."""
    calls: list[Call] = []
    replaced: dict[Any, CapturedImplementation] = {part.main: part for part in way.each}
    for node in draft.nodes:
        if node in replaced:
            calls += way.steps_over if over and node is way.main else replaced[node].steps
        elif node.target is not operator.getitem or node.args[0] not in replaced:
            calls.append(Call(node, IN_PLACE[node.target] if node in draft.in_place else _kernel_of(node)))  # type: ignore[index]
    return calls


def writes_of(draft: OperationDraft, way: CapturedImplementation, storages: Storages) -> list[StorageDraft]:
    """The storages that an implementation writes: those of the operation that it makes, and new ones."""
    made = [call.node for call in _calls_of(draft, way)]
    overwritten = _overwritten(draft, _calls_of(draft, way), storages)
    results = dict.fromkeys(storages.of_node[node] for node in made if node in storages.of_node)
    return [storage for storage in results if storage.carrier in made and storage not in overwritten]


def reads_of(draft: OperationDraft, way: CapturedImplementation, storages: Storages) -> list[StorageDraft]:
    """The storages that an implementation reads, without those that are there all the time."""
    calls = _calls_of(draft, way)
    made = {call.node for call in calls}
    passed_on = _overwritten(draft, calls, storages).intersection(map(storages.of_node.get, made))
    sources = [storages.of_node[node] for call in calls for node in call.sources if node not in made]
    return [storage for storage in dict.fromkeys(sources) if not storage.resident and storage not in passed_on]


def _overwritten(draft: OperationDraft, calls: list[Call], storages: Storages) -> set[StorageDraft]:
    """What calls of an operation overwrite that make their result in place: an earlier one's result, or an input."""
    return {storages.of_node[call.args[0]] for call in calls if call.node in draft.in_place}


def overwritten_by(draft: OperationDraft, way: CapturedImplementation, storages: Storages) -> StorageDraft | None:
    """The storage that an implementation may overwrite where it dies, or None.

    As for `remat_explorer.capture.in_place.takeover_of`: it is read once, and an output fits in its place, or what the
    operation's next call overwrites does.
    """
    if way.over is None:
        return None
    storage = storages.of_node[way.over]
    operands: list[Node] = []
    for call in _calls_of(draft, way):
        map_arg((call.args, call.kwargs), operands.append)
    reads = sum(storages.of_node.get(node) is storage for node in operands)
    if storage.resident or storage.persistent or reads != 1:
        return None
    made = {*writes_of(draft, way, storages), *_overwritten(draft, _calls_of(draft, way, over=True), storages)}
    heirs = [call.node for call in way.steps_over if storages.of_node.get(call.node) in made]
    return storage if heirs and covers(way.over, heirs[0], storages) else None
