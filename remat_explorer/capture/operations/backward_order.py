"""The order of the backward pass: a layer's weight gradient comes before its input gradient."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from remat_explorer.capture.graph_rewrites import is_random
from remat_explorer.capture.operations.collectives import REDUCE_SCATTER
from remat_explorer.capture.operations.storages import OperationDraft, StorageDraft, Storages

PASSING = (torch.ops.aten._to_copy.default, REDUCE_SCATTER)  # from what is made to the results


def weight_gradients_first(storages: Storages) -> None:
    """Move gradients of parameters before the operations right before them that read the same, in place.

    PyTorch traces the gradients of a `torch.nn.Linear` with a bias the other way round: the input gradient, then the
    weight and bias gradients. No number changes, for neither reads what the other writes. `split_convolution_backward`
    does the same for convolutions. There are two reasons:

    * Memory. After the weight gradient the layer's input may go, before the input gradient, which is as large, is made.
    * Order. Let x be the layer's input, the result of an activation, d the gradient of its output, and e that of its
      input. The weight gradient reads x and d, the input gradient makes e from d, and the backward of the activation
      reads x and overwrites e. Where only two of the three fit at a time, what it takes is x and d, then d and e, then
      e and x, computed again. With the input gradient first, e must be made again for the last of these, and x after
      it; but a stage runs its operations in ascending order, so x comes before e, and meets d.

    The results take memory one operation earlier. Right after it they are there beside d and e in either order, so
    keeping everything never takes more: an input gradient that reads something else, as the cast weights of autocast,
    is passed only where x has at least as many bytes as that.
    """
    aside = _for_parameters(storages)
    operations = storages.operations
    for draft in list(operations):
        if draft not in aside:
            continue
        place = operations.index(draft)
        while place > 0 and _may_pass(draft, operations[place - 1], aside):
            operations[place - 1 : place + 1] = draft, operations[place - 1]
            place -= 1


def _may_pass(draft: OperationDraft, before: OperationDraft, aside: set[OperationDraft]) -> bool:
    reads, others = set(draft.reads), set(before.reads)
    if before in aside or not before.backward or reads & set(before.writes) or not reads & others:
        return False
    return _bytes(others - reads) <= _bytes(reads - others)


def _bytes(storages: Iterable[StorageDraft]) -> int:
    return sum(storage.bytes for storage in storages)


def _for_parameters(storages: Storages) -> set[OperationDraft]:
    """Operations of the backward pass that only make results, or what is then cast to one, as autocast does.

    What is then scattered among processes counts, too.

    Operations that draw random numbers are left out: they stay where they are, so that each draws the same as before.
    """
    readers = storages.readers()
    aside: set[OperationDraft] = set()

    def is_aside(storage: StorageDraft) -> bool:
        casts = readers.get(storage, [])
        return all(reader in aside and reader.nodes[0].target in PASSING for reader in casts) and (
            storage.persistent or bool(casts)
        )

    for draft in reversed(storages.operations):
        if draft.backward and draft.reads and all(map(is_aside, draft.writes)) and not is_random(draft.nodes):
            aside.add(draft)
    return aside
