"""From operations and storages to the graph that solvers see, named and priced."""

from __future__ import annotations

import operator
from collections.abc import Callable

from torch.fx import Node

from remat_explorer.capture.operations.details import details_of, identifier
from remat_explorer.capture.operations.devices import Device
from remat_explorer.capture.operations.in_place import takeover_of
from remat_explorer.capture.operations.naming import LABEL, operation_name, unique
from remat_explorer.capture.operations.predicted_costs import predicted_cost, predicted_time
from remat_explorer.capture.operations.program import Result
from remat_explorer.capture.operations.reads_and_writes import overwritten_by, reads_of, writes_of
from remat_explorer.capture.operations.storages import OperationDraft, Readers, StorageDraft, Storages
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.graph import Graph, Implementation, Operation, Value

Numbers = dict[StorageDraft, int]


def numbered(storages: Storages) -> Numbers:
    """The value id of each storage, in order: what an operation writes, then what only its alternatives write."""
    number: Numbers = {}
    for draft in storages.operations:
        for storage in (*draft.writes, *(s for way in draft.ways for s in writes_of(draft, way, storages))):
            number.setdefault(storage, len(number))
    return number


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
        operation_name(draft.calls, [meanings.get(storage, "") for storage in draft.writes])
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
    return Operation(title, phase, (default, *others), draft.optional, details_of(draft, storages, number, name_of))


def _result_name(result: Result) -> str:
    return {"output": result.name, "gradient": f"{result.name}.grad", "buffer": f"{result.name} (new)"}[result.kind]


def _resident_name(node: Node) -> str:
    """What the code of a plan calls a parameter or buffer; anything else has its own name."""
    described = node.meta.get("desc") if node.op == "placeholder" else None
    kind = {"ParamAOTInput": "parameter", "BufferAOTInput": "buffer"}.get(type(described).__name__)
    return node.name if kind is None else identifier(f"{kind}_{getattr(described, 'target', node.name)}")


def _output_number(carrier: Node) -> int:
    return carrier.args[1] if carrier.target is operator.getitem else 0  # type: ignore[return-value]
