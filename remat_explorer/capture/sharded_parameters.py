"""A joint graph of whole parameters begins with parts of them, and ends with parts of their gradients.

Parts are resident. The parameters of a group are one value, gathered before its first use: a plan keeps it, or frees
it and gathers again. Where the last gradient of a group is there, a reduce-scatter gives this process its parts.

Both collectives send what FullyShardedDataParallel sends, in the same order, so that sums are the same bit for bit.
What a library of collectives has touched may be held by its threads for a while; it is emptied here, so that memory is
given back when the plan says so.

Source: Zhao et al., "PyTorch FSDP", VLDB 2023, for parameters that are gathered and gradients that are scattered.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, ParamAOTInput
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from remat_explorer.capture.content_tracking import NAMESPACE
from remat_explorer.capture.graph_assembly import MODULE_PATH, SOURCE_FILE, SOURCE_LINE
from remat_explorer.capture.graph_rewrites import output_node
from remat_explorer.capture.propagation import fake_mode
from remat_explorer.capture.sharding import ShardGroup, rows_of_part

aten = torch.ops.aten
_LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


def _gathered(parts: Sequence[torch.Tensor], numels: Sequence[int], count: int, processes: str) -> torch.Tensor:
    """The parameters one after another, each as often padded as its part is, in one tensor."""
    dist, group = _processes(processes)
    sent = parts[0].new_empty(count, sum(numels))
    mine = sent[dist.get_rank(group)]
    for place, part in zip(mine.split(list(numels)), parts, strict=True):
        place[: part.numel()].copy_(part.reshape(-1))
    if count > 1:
        _now(dist, "all_gather_single", "all_gather_into_tensor")(sent.view(-1), mine, group=group)
    whole = parts[0].new_empty(sent.numel())
    for place, rows in zip(whole.split([count * n for n in numels]), sent.split(list(numels), 1), strict=True):
        place.view(rows.shape).copy_(rows)
    sent.untyped_storage().resize_(0)
    return whole


def _scattered(gradients: Sequence[torch.Tensor], count: int, processes: str) -> list[torch.Tensor]:
    """This process's part of each gradient, averaged over all processes, padded to the size of the first part."""
    dist, group = _processes(processes)
    shapes = [_part_of(gradient, count) for gradient in gradients]
    numels = [shape.numel() for shape in shapes]
    sent = gradients[0].new_empty(count, sum(numels))
    for gradient, shape, place in zip(gradients, shapes, sent.split(numels, 1), strict=True):
        for rank, rows in enumerate(place.unflatten(1, shape)):
            mine = gradient[rank * shape[0] : (rank + 1) * shape[0]]
            rows[: len(mine)].copy_(mine)
            rows[len(mine) :].zero_()
    summed = sent[dist.get_rank(group)]
    if count > 1 and dist.get_backend(group) == "gloo":  # whose reduce-scatter is this, of a copy that its threads hold
        dist.all_reduce(sent, op=dist.ReduceOp.AVG, group=group)
    elif count > 1:
        summed = torch.empty_like(summed)
        scatter = _now(dist, "reduce_scatter_single", "reduce_scatter_tensor")
        scatter(summed, sent.view(-1), op=dist.ReduceOp.AVG, group=group)
        sent.untyped_storage().resize_(0)
    parts = [part.clone().view(shape) for part, shape in zip(summed.split(numels), shapes, strict=True)]
    summed.untyped_storage().resize_(0)
    return parts


def _whole(parts: Sequence[torch.Tensor], numels: Sequence[int], count: int, processes: str) -> torch.Tensor:
    return parts[0].new_empty(count * sum(numels))


def _parts(gradients: Sequence[torch.Tensor], count: int, processes: str) -> list[torch.Tensor]:
    return [gradient.new_empty(_part_of(gradient, count)) for gradient in gradients]


def _part_of(gradient: torch.Tensor, count: int) -> torch.Size:
    return torch.Size((rows_of_part(gradient.shape[0], count), *gradient.shape[1:]))


def _processes(name: str) -> tuple[Any, Any]:
    from torch import distributed  # for those who have several processes

    return distributed, distributed.distributed_c10d._resolve_process_group(name)  # type: ignore[arg-type]


def _now(module: Any, name: str, before: str) -> Any:
    """A function that torch 2.13 has given another name."""
    return getattr(module, name if hasattr(module, name) else before)


def _operator(name: str, schema: str, real: Any, fake: Any) -> Any:
    _LIBRARY.define(f"{name}{schema}")
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


ALL_GATHER = _operator(
    "all_gather", "(Tensor[] parts, int[] numels, int count, str processes) -> Tensor", _gathered, _whole
)
REDUCE_SCATTER = _operator(
    "reduce_scatter", "(Tensor[] gradients, int count, str processes) -> Tensor[]", _scattered, _parts
)
COLLECTIVES = (ALL_GATHER, REDUCE_SCATTER)


def _offsets(numels: Sequence[int], count: int) -> list[int]:
    """Where each parameter begins in what `ALL_GATHER` gives.

    >>> _offsets([4, 2], 3)
    [0, 12]
    """
    return [count * before for before in itertools.accumulate(numels, initial=0)][: len(numels)]


def share_out(module: GraphModule, groups: Sequence[ShardGroup]) -> None:
    """Insert the collectives into a clean joint graph."""
    for group in groups:
        _gather(module, group)
        _scatter(module, group)
    if groups:
        module.recompile()


def _gather(module: GraphModule, group: ShardGroup) -> None:
    given = {n.meta["desc"].target: n for n in module.graph.nodes if isinstance(n.meta.get("desc"), ParamAOTInput)}
    entries = [given[name] for name in group.names if name in given]
    order = {node: place for place, node in enumerate(module.graph.nodes)}
    read = [entry for entry in entries if entry.users]
    wholes = {entry: entry.meta["val"] for entry in entries}
    with fake_mode(module):
        for entry in entries:
            rows, *rest = wholes[entry].shape
            part = torch.empty((rows_of_part(rows, group.count), *rest), dtype=wholes[entry].dtype, device=_home(entry))
            entry.meta["val"] = part[: _own_rows(rows, group.count, group.rank)]
    if not read:
        return
    first = min((user for entry in read for user in entry.users), key=order.__getitem__)
    numels = [entry.meta["val"].untyped_storage().nbytes() // wholes[entry].itemsize for entry in read]
    readers = {entry: list(entry.users) for entry in read}
    with module.graph.inserting_before(first):
        gathered = _call(module, group, ALL_GATHER, read, numels, group.count, group.processes)
        for entry, offset in zip(read, _offsets(numels, group.count), strict=True):
            shape, strides = list(wholes[entry].shape), list(wholes[entry].stride())
            whole = _call(module, group, aten.as_strided.default, gathered, shape, strides, offset)
            for reader in readers[entry]:
                reader.replace_input_with(entry, whole)


def _scatter(module: GraphModule, group: ShardGroup) -> None:
    output = output_node(module)
    results = list(cast(list, output.args[0]))
    place_of = {
        meaning.grad_of.target: place
        for place, meaning in enumerate(output.meta["desc"])
        if isinstance(meaning, GradAOTOutput) and isinstance(meaning.grad_of, ParamAOTInput)
    }
    places = [place_of[name] for name in group.names if name in place_of and results[place_of[name]] is not None]
    if not places:
        return
    gradients = [results[place] for place in places]
    order = {node: place for place, node in enumerate(module.graph.nodes)}
    last = max(gradients, key=order.__getitem__)
    at_the_end = last.op == "placeholder"  # inputs come before the forward pass
    with module.graph.inserting_before(output) if at_the_end else module.graph.inserting_after(last):
        made = [scattered := _call(module, group, REDUCE_SCATTER, gradients, group.count, group.processes)]
    for number, (place, gradient) in enumerate(zip(places, gradients, strict=True)):
        rows = gradient.meta["val"].shape[0]
        own, padded = _own_rows(rows, group.count, group.rank), rows_of_part(rows, group.count)
        with module.graph.inserting_after(made[-1]):
            made.append(_call(module, group, operator.getitem, scattered, number))
        if own < padded:
            with module.graph.inserting_after(made[-1]):
                made.append(_call(module, group, aten.slice.Tensor, made[-1], 0, 0, own))
        results[place] = made[-1]
    for node in made:
        node.meta["partitioner_tag"] = "is_backward"
    output.args = (tuple(results),)


def _own_rows(rows: int, count: int, rank: int) -> int:
    """Rows that are a process's own, without padding.

    >>> [_own_rows(5, 4, rank) for rank in range(4)]
    [2, 2, 1, 0]
    """
    padded = rows_of_part(rows, count)
    return max(0, min(padded, rows - rank * padded))


def _home(entry: Node) -> torch.device:
    return entry.meta["val"].device


def _call(module: GraphModule, group: ShardGroup, target: Any, *args: Any) -> Node:
    made = module.graph.call_function(target, args)
    made.meta[MODULE_PATH], made.meta[SOURCE_LINE], made.meta[SOURCE_FILE] = group.path, "", None
    values = map_arg(args, lambda node: node.meta["val"])
    with fake_mode(module), torch.no_grad():
        made.meta["val"] = target(*values)
    return made
