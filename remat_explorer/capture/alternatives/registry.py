"""Which patterns give which alternatives, and how they come into a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch._ops import OpOverload

from remat_explorer.capture.alternatives import (
    activations,
    attention,
    convolutions,
    execution_plans,
    head_losses,
    losses,
    normalization,
    perceptrons,
    pooling,
    replay,
)
from remat_explorer.capture.alternatives.combining import combined
from remat_explorer.capture.alternatives.site import Content, Site, Surroundings
from remat_explorer.capture.bodies import reads_of, writes_of
from remat_explorer.capture.captured_program import CapturedImplementation
from remat_explorer.capture.devices import Device
from remat_explorer.capture.storages import Storages
from remat_explorer.capture_options import KINDS
from remat_explorer.graph.rules import MOST_IMPLEMENTATIONS

aten = torch.ops.aten
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
    ("activations", ACTIVATIONS, activations.from_other_operand),
    ("masks", ACTIVATIONS, activations.from_bits),
    ("masks", (aten.native_dropout_backward.default,), activations.dropout_from_bits),
    ("replay", (aten.native_dropout.default,), replay.forward),
    ("replay", (aten.native_dropout_backward.default,), replay.backward),
    ("pooling", (aten.max_pool2d_with_indices.default,), pooling.forward),
    ("pooling", (aten.max_pool2d_with_indices_backward.default,), pooling.backward),
    ("statistics", tuple(normalization.TRAINING), normalization.with_statistics),
    ("input-gradients", (aten.convolution_backward.default,), convolutions.input_gradient),
    ("attention", tuple(attention.BACKWARD), attention.recomputed),
    ("lean", (aten.native_batch_norm_backward.default,), normalization.lean),
    ("output-activated", (aten.native_batch_norm_backward.default,), normalization.from_output),
    ("output-activated", (aten.native_layer_norm_backward.default,), normalization.layer_norm_from_output),
    ("cross-entropy", CROSS_ENTROPY, losses.cross_entropy_ways),
    ("cross-entropy", (*CROSS_ENTROPY, aten.mm.default, aten._to_copy.default), head_losses.head_ways),
    ("chunks", CONVOLUTIONS, convolutions.chunks),
    ("chunks", None, perceptrons.perceptron_ways),
    ("chunks", (aten.convolution_backward.default,), convolutions.input_recomputed),
    ("algorithms", CONVOLUTIONS, convolutions.algorithms),
    ("algorithms", CONVOLUTIONS, execution_plans.algorithms),
    ("algorithms", tuple(attention.FORWARD), attention.forward),
    ("algorithms", tuple(attention.BACKWARD), attention.backward),
)


def add_alternatives(storages: Storages, kinds: tuple[str, ...], content: Content, device: Device) -> None:
    """Give the operations of a contracted graph their other implementations, in place.

    An operation made of several calls gets the alternatives of each of them, alone and together. Optional operations,
    which make what only alternatives read, come right after what they read has been made. Where only kinds are wanted
    that are bit-equal, an alternative that is not, on this device or in this memory format, is left out.

    Args:
        storages: operations and storages.
        kinds: keys of `remat_explorer.capture_options.KINDS`.
        content: the tensor of a parameter's node, or None.
        device: for predicted costs.
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
        draft.ways = combined(draft, choices, storages, device, MOST_IMPLEMENTATIONS - 1)
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
