"""The order of the backward pass: a layer's weight gradient comes before its input gradient."""

from __future__ import annotations

import torch

from remat_explorer.capture.randomness import is_random
from remat_explorer.capture.storages import OperationDraft, StorageDraft, Storages

aten = torch.ops.aten
FINISHING = (aten._to_copy.default, aten.sum.dim_IntList)


def weight_gradients_first(found: Storages) -> None:
    """Move what only makes gradients of parameters before the operations right before it that read the same, in place.

    PyTorch traces the gradients of ``torch.nn.Linear`` the other way round: the input gradient, then the weight and
    bias gradients. No number changes, for neither reads what the other writes. `split_convolution_backward` does the
    same for convolutions, for the same two reasons:

    * Memory. After the weight gradient the layer's input may go, before the input gradient, which is as large, is made.
    * Order. Let x be the layer's input, the result of an activation; d the gradient of its output and e that of its
      input. The weight gradient reads x and d; the input gradient makes e from d; the backward of the activation reads
      x and overwrites e. Where only two of the three fit at a time, d, x; then d, e; then e, x is what it takes. With
      the input gradient first, e has to be made a second time for the last of these, and x after it; but a stage runs
      its operations in ascending order, so x comes before e and meets d.

    The results take memory one operation earlier. That operation's own stage is the only one that sees it; right after
    it, in either order, they were there beside d and e. So nothing is lost unless the input gradient needs more
    workspace than x has bytes, or d has to be recomputed with x held beside it.

    With that, whole stages lose nothing to stages split into parts, or without any limit on order or repetition, by
    exhaustive search on captured perceptrons with up to three hidden layers, with residual connections and layer
    normalization.
    """
    aside = _for_parameters(found)
    gone_by: dict[OperationDraft, set[StorageDraft]] = {}  # what was made by the operations moved before this one
    operations = found.operations
    for draft in list(operations):
        if draft not in aside:
            continue
        place = operations.index(draft)
        while place > 0:
            before = operations[place - 1]
            related = set(before.reads) | gone_by.get(before, set())
            if before in aside or not before.backward or set(before.writes) & set(draft.reads):
                break
            if not related & set(draft.reads):
                break
            operations[place - 1 : place + 1] = draft, before
            gone_by.setdefault(before, set()).update(draft.writes)
            place -= 1


def _for_parameters(found: Storages) -> set[OperationDraft]:
    """Operations of the backward pass that only make results, and those that only make what such a sum or cast reads.

    Under autocast the weight gradient is cast to the type of the weight, and the gradient of a broadcast factor is
    summed. Operations that draw random numbers stay where they are, so that each draws the same as before.
    """
    readers = found.readers()
    aside: set[OperationDraft] = set()

    def is_result(storage: StorageDraft) -> bool:
        return storage.persistent and storage not in readers

    def is_finished_aside(storage: StorageDraft) -> bool:
        return all(reader in aside and reader.nodes[0].target in FINISHING for reader in readers.get(storage, ()))

    for draft in reversed(found.operations):
        if draft.backward and draft.reads and not is_random(draft.nodes):
            if all(is_result(storage) or is_finished_aside(storage) for storage in draft.writes):
                aside.add(draft)
    return aside
