"""From operations and storages to the graph that solvers see: numbered, named, priced, and with details for people.

Operations have names such as `features.3 conv2d`: the module's path and the operator.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._functorch._aot_autograd.descriptors import TangentAOTInput
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture.captured_program import Result
from remat_explorer.capture.devices import Device
from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.in_place import takeover_of
from remat_explorer.capture.in_place_layouts import written_in_layout
from remat_explorer.capture.operation_calls import overwritten_by, reads_of, writes_of
from remat_explorer.capture.predicted_costs import (
    ConvolutionArguments,
    predicted_cost,
    predicted_time,
    wanted_gradients,
)
from remat_explorer.capture.storages import OperationDraft, Readers, StorageDraft, Storages
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.graph import Graph, Implementation, Operation, Value
from remat_explorer.operation_details import AutogradNode, Details, shape_text

MODULE_PATH = "remat_explorer.module_path"  # a key in a node's meta
AROUND = "remat_explorer.around"  # the modules around it that run once
SOURCE_LINE = "remat_explorer.source_line"  # another
SOURCE_FILE = "remat_explorer.source_file"  # and the file that it is in
TRAINED = "remat_explorer.trained"  # in a module's meta: lines that read constants with a gradient, by their names
LABEL = "remat_explorer.label"  # a third: what a value is that only other implementations write
_KNOWN = {
    "_native_batch_norm_legit_functional": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "addmm": "linear",
    "sigmoid_in_layout": "sigmoid",
    "laid_out": "copy",
    "threshold_backward": "relu_backward",
    "_to_copy": "cast",
}
_PREFIXES = ("_", "native_")
_SUFFIXES = ("_with_indices", "_data", "_forward", "_functional")
LONGEST = 300  # letters of a call
_aten = torch.ops.aten
_FACTORS = (_aten.mul.Tensor, _aten.div.Tensor)
Numbers = dict[StorageDraft, int]


def assemble(
    name: str,
    storages: Storages,
    number: Numbers,
    results: tuple[Result, ...],
    device: Device,
    options: CaptureOptions,
) -> Graph:
    """The graph.

    Args:
        name: of the model.
        storages: operations and storages.
        number: as `numbered` gives it.
        results: what the training step leaves behind.
        device: whose rates give the costs.
        options: how it was captured.
    """
    meanings = {storages.of_node[result.node]: _result_name(result) for result in results}
    titles = unique(
        _operation_name(draft.calls, [meanings.get(storage, "") for storage in draft.writes])
        for draft in storages.operations
    )
    labels = dict.fromkeys(number, "")
    for draft, title in zip(storages.operations, titles, strict=True):
        plain = [storage for storage in draft.writes if storage not in meanings]
        for storage in draft.writes:
            counted = f"{title} [{_output_number(storage.carrier)}]" if len(plain) > 1 else title
            labels[storage] = meanings.get(storage, counted)
        for storage in (s for way in draft.ways for s in writes_of(draft, way, storages)):
            labels[storage] = labels[storage] or f"{title} {storage.carrier.meta[LABEL]}"
    names = list(unique(labels.values()))
    entries = zip(names, number, strict=True)
    of_carrier = {storage.carrier: identifier(label) for label, storage in zip(names, number, strict=True)}
    readers = storages.readers()

    def name_of(node: Node) -> str:
        return of_carrier.get(node) or _resident_name(node)

    return Graph(
        name,
        tuple(Value(label, storage.bytes, storage.persistent) for label, storage in entries),
        tuple(
            _operation(draft, title, storages, readers, number, device, name_of)
            for draft, title in zip(storages.operations, titles, strict=True)
        ),
        storages.resident_bytes,
        options,
    )


def number_storages(storages: Storages) -> Numbers:
    """The value id of each storage, in order: what an operation writes, then what only its alternatives write."""
    number: Numbers = {}
    for draft in storages.operations:
        for storage in (*draft.writes, *(s for way in draft.ways for s in writes_of(draft, way, storages))):
            number.setdefault(storage, len(number))
    return number


def _operation(
    draft: OperationDraft,
    title: str,
    storages: Storages,
    readers: Readers,
    number: Numbers,
    device: Device,
    name_of: Callable[[Node], str],
) -> Operation:
    takeover = takeover_of(draft, storages, readers)
    default = Implementation(
        tuple(sorted(number[storage] for storage in draft.reads)),
        tuple(sorted(number[storage] for storage in draft.writes)),
        predicted_time(draft.calls, storages.fakes, device),
        max(0, draft.discarded),
        overwrites=None if takeover is None else number[takeover.storage],
    )
    others: list[Implementation] = []
    for way in draft.ways:
        taken = overwritten_by(draft, way, storages)
        others.append(
            Implementation(
                tuple(sorted(number[storage] for storage in reads_of(draft, way, storages))),
                tuple(sorted(number[storage] for storage in writes_of(draft, way, storages))),
                predicted_cost(draft, way, storages, device),
                way.workspace,
                way.name,
                None if taken is None else number[taken],
                way.tolerance,
                way.kinds,
            )
        )
    phase = "backward" if draft.backward else "forward"
    return Operation(title, phase, (default, *others), draft.optional, _details_of(draft, storages, number, name_of))


def _result_name(result: Result) -> str:
    return {"output": result.name, "gradient": f"{result.name}.grad", "buffer": f"{result.name} (new)"}[result.kind]


def _resident_name(node: Node) -> str:
    """What the code of a plan calls a parameter or buffer; anything else has its own name."""
    described = node.meta.get("desc") if node.op == "placeholder" else None
    kind = {"ParamAOTInput": "parameter", "BufferAOTInput": "buffer"}.get(type(described).__name__)
    return node.name if kind is None else identifier(f"{kind}_{getattr(described, 'target', node.name)}")


def _output_number(carrier: Node) -> int:
    return carrier.args[1] if carrier.target is operator.getitem else 0  # type: ignore[return-value]


def _details_of(
    draft: OperationDraft, storages: Storages, number: dict[StorageDraft, int], name_of: Callable[[Node], str]
) -> Details:
    """The details of an operation; a backward operation has the module and line of its forward operation."""
    calls = draft.calls
    origin = next((call.meta for call in calls if call.meta.get(SOURCE_LINE)), {})
    outputs = sorted(draft.writes, key=number.__getitem__)
    return Details(
        calls[0].meta.get(MODULE_PATH, "") if calls else "",
        " + ".join(operator_name(call) for call in calls),
        tuple(_shape(storage.carrier.meta.get("val")) for storage in outputs),
        origin.get(SOURCE_LINE, ""),
        origin.get(SOURCE_FILE),
        tuple(_call_text(call, name_of) for call in calls),
        calls[0].meta.get(AROUND, ()) if calls else (),
        _autograd_node(calls[-1], draft.backward, storages) if calls else None,
        is_random(draft.nodes),
    )


def _autograd_node(call: Node, backward: bool, storages: Storages) -> AutogradNode:
    number = None if call.meta.get("is_gradient_acc") else call.meta.get("seq_nr")
    read = (storages.of_node[node].carrier for node in call.all_input_nodes if node in storages.of_node)
    given = [node.meta.get("desc") for node in read if node.op in ("placeholder", "get_attr")]
    resident = any(not isinstance(one, TangentAOTInput) if backward else one in storages.trained for one in given)
    scalar = call.target in _FACTORS and not isinstance(call.args[1], Node)
    noise = 0
    if call.target is _aten.native_dropout.default and storages.fakes[call][1].device.type == "cpu":
        result, mask = storages.fakes[call]  # PyTorch multiplies by noise of the input's type there
        noise = result.nbytes - mask.nbytes
    return AutogradNode(-1 if number is None else number, storages.order[call], resident, scalar, noise)


def operator_name(node: Node) -> str:
    """The operator of a call, without the marks that tell its kernels apart."""
    target: Any = node.args[0] if node.target is written_in_layout else node.target
    name = str(getattr(target, "overloadpacket", getattr(target, "__name__", target)))
    name = name.removeprefix("aten.").removeprefix("remat_explorer.")
    if name in _KNOWN:
        return _KNOWN[name]
    if name.startswith("convolution"):
        return _convolution_name(node, backward=name.endswith("backward"))
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return _without_suffixes(name.removesuffix("_"))


def _convolution_name(node: Node, backward: bool) -> str:
    """`conv2d`, `conv_transpose1d`, and in the backward pass which of its gradients are computed."""
    weight = node.args[2 if backward else 1]
    size = weight.meta["val"].dim() - 2  # type: ignore[union-attr]
    forward = f"conv{'_transpose' if ConvolutionArguments.of(node).transposed else ''}{size}d"
    if not backward:
        return forward
    to_input, to_weight, to_bias = wanted_gradients(node)
    if not (to_weight or to_bias):
        return f"{forward}_input_gradient"
    return f"{forward}_backward" if to_input else f"{forward}_weight_gradient"


def _without_suffixes(name: str) -> str:
    if name.endswith("_backward"):
        return _without_suffixes(name.removesuffix("_backward")) + "_backward"
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return _without_suffixes(name.removesuffix(suffix))
    return name


def _operation_name(calls: Iterable[Node], results: Iterable[str]) -> str:
    """The path of the module and what runs there, joined by + where several calls became one operation.

    ``results`` has for each output the name of the result that it is, or "".
    """
    calls, results = list(calls), list(results)
    operators = [operator_name(call) for call in calls]
    what = " + ".join(operators)
    only_gradients = all(result.endswith(".grad") for result in results)
    if only_gradients and not any(name.endswith(("_backward", "_scatter")) for name in operators):
        what = "gradient of " + ", ".join(result.split(".")[-2] for result in results)  # not "sum + mm"
    path = calls[0].meta.get(MODULE_PATH, "")
    return f"{path} {what}" if path else what


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The same names, with a number after each that was there before.

    >>> unique(["relu", "add", "relu", "relu"])
    ('relu', 'add', 'relu (2)', 'relu (3)')
    """
    taken: set[str] = set()
    distinct = []
    for name in names:
        number, candidate = 1, name
        while candidate in taken:
            number += 1
            candidate = f"{name} ({number})"
        taken.add(candidate)
        distinct.append(candidate)
    return tuple(distinct)


class _Name(str):
    """A name that stands without quotes where arguments are written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _call_text(call: Node, name_of: Callable[[Node], str]) -> str:
    """A call as a line of Python, as the code of a plan has it."""
    args, kwargs = map_arg((call.args, call.kwargs), lambda node: _Name(name_of(node)))
    given = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    target = call.target
    packet = getattr(target, "overloadpacket", None)
    name = f"torch.ops.{target}" if packet is not None else getattr(target, "__name__", str(target))
    text = f"{name_of(call)} = {name}({', '.join(given)})"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]}…)"


def identifier(name: str) -> str:
    """A name as Python can have it.

    >>> identifier("0 linear + relu")
    '_0_linear_relu'
    """
    name = re.sub(r"\W+", "_", name)
    return f"_{name}" if name[:1].isdigit() else name


def _shape(result: Any) -> str:
    """The shape of what a node gives; of several results, the first."""
    tensor: Any = result[0] if isinstance(result, tuple | list) and result else result
    return shape_text(tuple(int(size) for size in tensor.shape)) if hasattr(tensor, "shape") else ""
