"""Which patterns give which implementations, and how they come into a graph: `PATTERNS` and `add_alternatives`.

Contraction joins calls: two weight gradients from the same tensors are one operation. To compute one of them in chunks
saves nothing where the other takes its whole workspace, so the alternatives of different calls must be had together.
That makes products, of which those are dropped that another one dominates: in predicted cost, workspace, and what it
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch._ops import OpOverload
from torch.fx import Node

from remat_explorer.capture.captured_program import CapturedImplementation
from remat_explorer.capture.devices import Device
from remat_explorer.capture.implementations import (
    attention_kernels,
    convolutions,
    cross_entropy,
    cudnn_plans,
    dropout,
    masks,
    normalization,
    perceptrons,
    pooling,
)
from remat_explorer.capture.implementations.call_site import Content, Site, Surroundings
from remat_explorer.capture.operation_calls import overwritten_by, reads_of, writes_of
from remat_explorer.capture.predicted_costs import predicted_cost
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages
from remat_explorer.capture_options import KINDS
from remat_explorer.graph import MOST_IMPLEMENTATIONS

aten = torch.ops.aten

T = TypeVar("T")
WIDEST = 64  # products that are carried on from call to call
Pattern = Callable[[Site], Iterator[CapturedImplementation]]
CONVOLUTIONS = (aten.convolution.default, aten.convolution_backward.default)
ACTIVATIONS = (aten.threshold_backward.default, aten.hardtanh_backward.default)
CROSS_ENTROPY = (
    aten._log_softmax.default,
    aten.nll_loss_forward.default,
    aten.nll_loss_backward.default,
    aten._log_softmax_backward_data.default,
)
PATTERNS: tuple[tuple[str, tuple[OpOverload, ...] | None, Pattern], ...] = (  # kind, operators or None for any, pattern
    ("activations", ACTIVATIONS, masks.from_other_operand),
    ("masks", ACTIVATIONS, masks.from_bits),
    ("masks", (aten.native_dropout_backward.default,), dropout.dropout_from_bits),
    ("replay", (aten.native_dropout.default,), dropout.forward),
    ("replay", (aten.native_dropout_backward.default,), dropout.backward),
    ("pooling", (aten.max_pool2d_with_indices.default,), pooling.forward),
    ("pooling", (aten.max_pool2d_with_indices_backward.default,), pooling.backward),
    ("statistics", tuple(normalization.TRAINING), normalization.with_statistics),
    ("input-gradients", (aten.convolution_backward.default,), convolutions.input_gradient_ways),
    ("attention", tuple(attention_kernels.BACKWARD), attention_kernels.recomputed),
    ("lean", (aten.native_batch_norm_backward.default,), normalization.lean),
    ("output-activated", (aten.native_batch_norm_backward.default,), normalization.from_output),
    ("output-activated", (aten.native_layer_norm_backward.default,), normalization.layer_norm_from_output),
    ("cross-entropy", CROSS_ENTROPY, cross_entropy.cross_entropy_ways),
    ("cross-entropy", (*CROSS_ENTROPY, aten.mm.default, aten._to_copy.default), cross_entropy.head_ways),
    ("chunks", CONVOLUTIONS, convolutions.chunk_ways),
    ("chunks", None, perceptrons.perceptron_ways),
    ("chunks", (aten.convolution_backward.default,), convolutions.input_recomputed),
    ("algorithms", CONVOLUTIONS, convolutions.algorithms),
    ("algorithms", CONVOLUTIONS, cudnn_plans.algorithms),
    ("algorithms", tuple(attention_kernels.FORWARD), attention_kernels.forward),
    ("algorithms", tuple(attention_kernels.BACKWARD), attention_kernels.backward),
)


def add_alternatives(storages: Storages, kinds: tuple[str, ...], content: Content, device: Device) -> None:
    """Give the operations of a contracted graph their other implementations, in place.

    An operation made of several calls gets the alternatives of each of them, alone and together. Optional operations,
    which make what only alternatives read, come right after what they read has been made. Where only kinds are wanted
    that are bit-equal, an alternative that is not, on this device or in this memory format, is left out.
    """
    scene = Surroundings(storages, kinds, content)
    exact = all(map(KINDS.__getitem__, kinds))
    for draft in list(storages.operations):
        choices: list[list[CapturedImplementation]] = []
        for call in draft.calls:
            site = Site(scene, draft, call)
            here = [row for row in PATTERNS if row[0] in kinds and (row[1] is None or call.target in row[1])]
            found_here = [way for *_, pattern in here for way in pattern(site) if way.tolerance == 0 or not exact]
            choices += [found_here] if found_here else []
        draft.ways = _combined(draft, choices, storages, device, MOST_IMPLEMENTATIONS - 1)
    for after, draft in scene.optional:
        place = storages.operations.index(after)
        while place + 1 < len(storages.operations) and storages.operations[place + 1].optional:
            place += 1
        storages.operations.insert(place + 1, draft)
    _drop_unread(storages)


def _drop_unread(storages: Storages) -> None:
    """Remove alternatives that read what nobody writes or write what nobody reads, and optional operations likewise.

    One may leave another without a reader or a writer, so this is repeated until nothing goes.
    """
    before = -1
    while before != (before := sum(1 + len(draft.ways) for draft in storages.operations)):
        read = {s for draft in storages.operations for way in draft.ways for s in reads_of(draft, way, storages)}
        storages.operations = [d for d in storages.operations if not d.optional or d.writes[0] in read]
        own = {s for draft in storages.operations for s in draft.writes}
        made = own.union(*(writes_of(d, way, storages) for d in storages.operations for way in d.ways))
        for draft in storages.operations:
            draft.ways = [
                way
                for way in draft.ways
                if made.issuperset(reads_of(draft, way, storages))
                and (own | read).issuperset(writes_of(draft, way, storages))
            ]


@dataclass(frozen=True, eq=False)
class ImplementationNeeds:
    """What a way needs, as far as it can be said before it runs."""

    way: CapturedImplementation
    cost: float  # predicted, in seconds
    workspace: int  # bytes, the largest of the calls that it replaces
    own: frozenset[Node]  # calls with alternatives that stay, whose workspace only a profile knows
    reads: frozenset[StorageDraft]
    makes: tuple[frozenset[StorageDraft], StorageDraft | None]  # storages that it writes, and may overwrite

    def dominates(self, other: ImplementationNeeds) -> bool:
        """Whether it makes the same, and is nowhere worse."""
        return (
            self.makes == other.makes
            and self.reads <= other.reads
            and self.own <= other.own
            and all(mine <= theirs for mine, theirs in zip(self.numbers, other.numbers, strict=True))
            and (self.numbers != other.numbers or self.reads < other.reads or self.own < other.own)
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """What should be small."""
        return self.cost, self.workspace, self.way.portion, self.way.tolerance


def _combined(
    draft: OperationDraft, choices: list[list[CapturedImplementation]], storages: Storages, device: Device, most: int
) -> list[CapturedImplementation]:
    """The alternatives of an operation, at most ``most``: of single calls, and of several together."""
    if len(choices) < 2:
        return [way for ways in choices for way in ways][:most]
    calls = frozenset(ways[0].main for ways in choices)
    products: list[CapturedImplementation | None] = [None]
    for ways in choices:
        pairs = ((first, second) for first in products for second in ways)
        longer = [*products, *(_both(first, second) for first, second in pairs if not _overlap(first, second))]
        kept = _useful([way for way in longer if way is not None], calls, draft, storages, device)
        products = [None, *(needs.way for needs in _spread(kept, WIDEST))]
    kept = _useful([way for way in products if way is not None], calls, draft, storages, device)
    whole = _spread([needs for needs in kept if not needs.own], most)
    partly = _spread([needs for needs in kept if needs.own], most - len(whole))
    order = [ways[0].main for ways in choices]
    return [replace(needs.way, name=_name(needs.way, order)) for needs in (*whole, *partly)]


def _name(way: CapturedImplementation, calls: list[Node]) -> str:
    """The name of all parts, or which call has which."""
    names = {part.name for part in way.each}
    if len(names) == 1 and len(way.each) == len(calls):
        return names.pop()
    return ", ".join(f"{part.name} for call {calls.index(part.main) + 1}" for part in way.each)


def _overlap(first: CapturedImplementation | None, second: CapturedImplementation) -> bool:
    """Whether a call is replaced by both."""
    mains = set() if first is None else {part.main for part in first.each}
    return any(part.main in mains for part in second.each)


def _both(first: CapturedImplementation | None, second: CapturedImplementation) -> CapturedImplementation:
    """The way that replaces the calls of both."""
    if first is None:
        return second
    parts = (*first.each, *second.each)
    taker = next((part for part in parts if part.over is not None), parts[0])
    kinds = tuple(dict.fromkeys(kind for part in parts for kind in part.kinds))
    return CapturedImplementation(
        kinds[0],
        "",
        taker.main,
        (),
        max(part.tolerance for part in parts),
        taker.over,
        taker.steps_over,
        again=tuple(call for part in parts for call in part.again),
        workspace=max(part.workspace for part in parts),
        portion=max(part.portion for part in parts),
        also=kinds[1:],
        parts=parts,
    )


def _useful(
    ways: Iterable[CapturedImplementation],
    calls: frozenset[Node],
    draft: OperationDraft,
    storages: Storages,
    device: Device,
) -> list[ImplementationNeeds]:
    """Those that no other one dominates, by falling memory."""
    every = [
        ImplementationNeeds(
            way,
            predicted_cost(draft, way, storages, device),
            way.workspace,
            calls.difference(part.main for part in way.each),
            frozenset(reads_of(draft, way, storages)),
            (frozenset(writes_of(draft, way, storages)), overwritten_by(draft, way, storages)),
        )
        for way in ways
    ]
    kept = [needs for needs in every if not any(other.dominates(needs) for other in every)]
    return sorted(kept, key=lambda needs: (-sum(s.bytes for s in needs.reads) - needs.workspace, -needs.way.portion))


def _spread(needs: list[T], most: int) -> list[T]:
    """At most that many, from the whole of the row, its end and so the least memory included."""
    if len(needs) <= most:
        return needs
    if most <= 1:
        return needs[-1:] if most == 1 else []
    return [needs[-1 - (len(needs) - 1) * place // (most - 1)] for place in range(most)][::-1]
