"""What is done to operations before they are numbered: reordered, taken out, and joined.

`weight_gradients_first` puts a layer's weight gradient before its input gradient; `hoist_constants` computes once what
depends on nothing, such as positions and masks that a model makes anew in every forward pass; `contract_operations`
joins some without losing a schedule worth having: fewer rows and columns for the solvers.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch._ops import OpOverload
from torch.fx import Node

from remat_explorer.capture.graph_rewrites import is_copy_of, is_random
from remat_explorer.capture.in_place import COMMUTATIVE, IN_PLACE, covers, swap_operands, takeover_of
from remat_explorer.capture.sharded_parameters import REDUCE_SCATTER
from remat_explorer.capture.storages import OperationDraft, Readers, StorageDraft, Storages

aten = torch.ops.aten

PASSING = (torch.ops.aten._to_copy.default, REDUCE_SCATTER)  # from what is made to the results
LARGEST_SHARE = 0.02  # of the graph's largest value, that a constant may take from every moment
SMALL_LEAF = 64 * 1024  # bytes of a bias gradient that may join the weight gradient right before it
NORMALIZED = (aten._native_batch_norm_legit_functional.default, aten.native_batch_norm.default)


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

    What is then scattered among processes counts, too. Operations that draw random numbers are left out: they stay
    where they are, so that each draws the same as before.
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


def hoist_constants(
    storages: Storages, chosen: tuple[bool, ...] | None = None
) -> tuple[list[OperationDraft], tuple[bool, ...]]:
    """Compute small constants once before everything else and keep them, instead of planning for them.

    This loses at most their bytes. `LARGEST_SHARE` limits those, so that a mask stays with the solver where it is not
    small beside what it masks. The constants become resident, and operations that nobody needs any more go. Gives one
    operation that makes them all, or none, and for each constant whether it is kept: ``chosen`` in a call for the same
    step with inputs of another size, which heeds it, whatever they take, unless the numbers of constants differ.
    """
    constant = _constant_operations(storages)
    readers = storages.readers()
    largest = max((storage.bytes for draft in storages.operations for storage in draft.writes), default=0)
    constants = [
        storage
        for draft in constant
        for storage in draft.writes
        if not storage.persistent and any(reader not in constant for reader in readers.get(storage, ()))
    ]
    if chosen is None or len(chosen) != len(constants):
        chosen = tuple(storage.bytes <= LARGEST_SHARE * largest for storage in constants)
    hoisted = [storage for storage, kept in zip(constants, chosen, strict=True) if kept]
    if not hoisted:
        return [], chosen
    nodes = [node for draft in _makers(hoisted, constant) for node in draft.nodes]
    for storage in hoisted:
        storage.resident = True
        storages.resident_bytes += storage.bytes
    for draft in storages.operations:
        draft.reads = [storage for storage in draft.reads if not storage.resident]
    _drop_unread(storages, constant)
    return [OperationDraft(nodes, backward=False, writes=hoisted)], chosen


def _constant_operations(storages: Storages) -> list[OperationDraft]:
    """Operations that neither read anything but each other, nor draw random numbers, nor see a parameter or input."""
    made: set[StorageDraft] = set()
    constant = []
    for draft in storages.operations:
        sources = {storages.of_node[node] for call in draft.calls for node in call.all_input_nodes}
        varying = any(s not in made and (not s.resident or s.carrier.op == "placeholder") for s in sources)
        if not varying and not is_random(draft.nodes):
            constant.append(draft)
            made |= set(draft.writes)
    return constant


def _makers(wanted: list[StorageDraft], constant: list[OperationDraft]) -> list[OperationDraft]:
    """The operations that the wanted storages take, in order."""
    needed = set(wanted)
    makers = []
    for draft in reversed(constant):
        if needed & set(draft.writes):
            makers.append(draft)
            needed |= set(draft.reads)
    return makers[::-1]


def _drop_unread(storages: Storages, constant: list[OperationDraft]) -> None:
    """Remove constant operations whose outputs are resident by now, or read by nobody."""
    for draft in reversed(constant):
        readers = storages.readers()
        if all(storage.resident or not (storage.persistent or readers.get(storage)) for storage in draft.writes):
            storages.operations.remove(draft)


def contract_operations(storages: Storages, kinds: tuple[str, ...] = ()) -> None:
    """Apply every rule below, in place.

    Args:
        storages: operations and storages.
        kinds: of alternative implementations that operations will get; what they read must remain a value.
    """
    _join_copies(storages)
    _fuse_unary(storages, NORMALIZED if "output-activated" in kinds else ())
    _fuse_tied_sums(storages)
    _merge_leaves(storages)
    _merge_fan_out_sums(storages)


def _join_copies(storages: Storages) -> None:
    """Make the copy of a result that lies in a larger storage right where the result is made.

    Whatever keeping the storage makes possible, keeping the copy makes possible for less; while the operation runs,
    the copy is there beside the storage.

    Source: `remat_explorer.capture.graph_rewrites`, which inserts the copies.
    """
    readers = storages.readers()
    producer = {storage: draft for draft in storages.operations for storage in draft.writes}
    for draft in list(storages.operations):
        if (len(draft.nodes), len(draft.reads), len(draft.writes)) != (1, 1, 1):
            continue
        (source,), (copied,) = draft.reads, draft.writes
        maker = producer[source]
        if is_copy_of(draft.nodes[0], source.carrier) and readers[source] == [draft] and not source.persistent:
            maker.nodes += draft.nodes
            maker.writes[maker.writes.index(source)] = copied
            producer[copied] = maker
            storages.operations.remove(draft)


def _fuse_unary(storages: Storages, apart: tuple[OpOverload, ...] = ()) -> None:
    """Run a unary operation in place inside the only producer of its input, when nobody else reads that input.

    An operation whose other inputs are parameters, inputs or constants counts as unary: they are there all the time.
    Nothing is lost: input and output have the same bytes, and whatever keeping the input makes possible, keeping the
    output makes possible at no cost. The in-place run also saves the moment at which both would exist. Results of
    operators ``apart`` must remain, for alternatives that read them.
    """
    readers = storages.readers()
    producer = {storage: draft for draft in storages.operations for storage in draft.writes}
    for draft in list(storages.operations):
        call = _unary_call(draft, storages)
        if call is None:
            continue
        source, target = draft.reads[0], draft.writes[0]
        maker = producer[source]
        if maker.nodes[0].target in apart:
            continue
        if source.persistent or readers[source] != [draft] or maker.backward != draft.backward:
            continue
        maker.nodes.append(call)
        maker.in_place |= {call}
        maker.writes[maker.writes.index(source)] = target
        producer[target] = maker
        storages.operations.remove(draft)


def _unary_call(draft: OperationDraft, storages: Storages) -> Node | None:
    """The call of an operation that could overwrite all of its one input that is no parameter, input or constant."""
    if len(draft.nodes) != 1 or len(draft.reads) != 1 or draft.nodes[0].target not in IN_PLACE:
        return None
    (call,) = draft.nodes
    sources = [node for node in call.all_input_nodes if not storages.of_node[node].resident]
    if len(sources) > 1 or not covers(sources[0], call, storages):
        return None
    if call.args[0] is not sources[0]:
        if call.target not in COMMUTATIVE or call.kwargs or call.args[1] is not sources[0]:
            return None  # with a factor, as in torch.add(a, b, alpha=2), operands cannot change places
        swap_operands(call)
    return call


def _merge_leaves(storages: Storages) -> None:
    """Join an operation that only makes results to a later one that only makes results and reads at least as much.

    Nothing is lost when the later one comes last: its inputs must be there anyway, and the earlier one's output then
    exists for a shorter time. A leaf right after one that reads more (the bias gradient after the weight gradient)
    runs before it instead. There the two can meet in memory where the weight gradient's inputs could have been freed
    in between, so this is done for results of at most `SMALL_LEAF` bytes only, and can cost no more than those; but
    the stage between the two is gone, in which a very tight schedule might compute something again. A leaf that may
    overwrite an input is left alone: with two outputs it could not.
    """
    readers = storages.readers()
    position = {draft: place for place, draft in enumerate(storages.operations)}
    leaves = [draft for draft in storages.operations if _is_leaf(draft, readers)]
    leaves = [draft for draft in leaves if takeover_of(draft, storages, readers) is None]
    reading: dict[StorageDraft, list[OperationDraft]] = {}
    for leaf in leaves:
        for storage in leaf.reads:
            reading.setdefault(storage, []).append(leaf)
    joined: set[OperationDraft] = set()
    for leaf in leaves:
        for other in reading[leaf.reads[0]]:
            if other is leaf or other in joined or not set(leaf.reads) <= set(other.reads):
                continue
            if leaf.backward != other.backward:  # the loss is there before the backward pass begins
                continue
            later = position[other] > position[leaf]
            next_door = position[other] == position[leaf] - 1 and sum(s.bytes for s in leaf.writes) <= SMALL_LEAF
            if later or next_door:
                other.nodes = leaf.nodes + other.nodes
                other.writes = leaf.writes + other.writes
                other.discarded = max(leaf.discarded, other.discarded)
                joined.add(leaf)
                break
    storages.operations = [draft for draft in storages.operations if draft not in joined]


def _is_leaf(draft: OperationDraft, readers: Readers) -> bool:
    """Whether every output is a result that nobody reads. Operations that read nothing run at the end, not here."""
    return bool(draft.reads) and all(s.persistent and s not in readers for s in draft.writes) and not draft.in_place


def _fuse_tied_sums(storages: Storages) -> None:
    """Add the second gradient of a tied parameter to the first one as soon as it is there, in place of itself.

    Eager training does the same: the first gradient waits in ``.grad``. Fused, the first must be there while the
    second is computed; it could be absent only if it were computed again for the sum, which means a second backward
    pass up to the first use of the parameter. The moment at which three such tensors exist is saved.
    """
    readers = storages.readers()
    producer = {storage: draft for draft in storages.operations for storage in draft.writes}
    for draft in list(storages.operations):
        if not _is_sum(draft) or not draft.writes[0].persistent:
            continue
        early, late = sorted(draft.reads, key=lambda storage: storages.order[storage.carrier])
        (call,) = draft.nodes
        first, second = call.all_input_nodes
        if storages.of_node[first] is early:
            first, second = second, first
        maker = producer[late]
        if readers[late] != [draft] or late.persistent or not maker.backward or not covers(first, call, storages):
            continue
        if call.args[0] is not first:
            swap_operands(call)
        maker.nodes.append(call)
        maker.in_place |= {call}
        maker.reads = list(dict.fromkeys([*maker.reads, early]))
        maker.writes[maker.writes.index(late)] = draft.writes[0]
        storages.operations.remove(draft)


def _merge_fan_out_sums(storages: Storages) -> None:
    """Join the sums that add parts of one gradient to gradients that wait, right after that gradient was made.

    In a dense block the gradient of a concatenation is added, slice by slice, to the gradients of all earlier layers:
    as many additions as there are pairs of layers. Nothing is lost where the operation that made the gradient was the
    last to read at least as many bytes as the sums take: those can go before the sums come, so that the joint
    operation never needs more than the operation before it did, with the same gradients waiting. What that operation
    overwrites was not there beside its output, and so does not count.
    """
    readers = storages.readers()
    place = 0
    while place < len(storages.operations):
        maker = storages.operations[place]
        sums = _sums_after(storages, place, readers)
        taken = sum(draft.writes[0].bytes for draft in sums)
        if len(sums) > 1 and taken <= _freed_after(maker, storages, readers):
            joint = sums[0]
            for draft in sums[1:]:
                joint.nodes += draft.nodes
                joint.writes += draft.writes
                joint.reads = list(dict.fromkeys(joint.reads + draft.reads))
            joined = set(map(id, sums[1:]))
            storages.operations = [draft for draft in storages.operations if id(draft) not in joined]
            readers = storages.readers()
        place += 1


def _freed_after(draft: OperationDraft, storages: Storages, readers: Readers) -> int:
    """Bytes of what nobody reads after an operation, without what it overwrites."""
    takeover = takeover_of(draft, storages, readers)
    overwritten = 0 if takeover is None else takeover.storage.bytes
    return sum(storage.bytes for storage in draft.reads if readers[storage][-1] is draft) - overwritten


def _sums_after(storages: Storages, place: int, readers: Readers) -> list[OperationDraft]:
    """The additions right after an operation that read one of its outputs, and none of each other's."""
    maker = storages.operations[place]
    sums: list[OperationDraft] = []
    for draft in storages.operations[place + 1 :]:
        made = {storage for earlier in sums for storage in earlier.writes}
        if not (draft.backward and _is_sum(draft) and set(draft.reads) & set(maker.writes)) or made & set(draft.reads):
            break
        sums.append(draft)
    return sums


def _is_sum(draft: OperationDraft) -> bool:
    """Whether the operation only adds two tensors."""
    return (
        len(draft.nodes) == 1
        and draft.nodes[0].target is aten.add.Tensor
        and not draft.nodes[0].kwargs
        and len(draft.reads) == 2
    )
