"""Lets a joint graph of whole parameters begin with parts of them, and end with parts of their gradients.

Parts are resident. The parameters of a group are one value, gathered before its first use: a plan keeps it, or frees
it and gathers again. Where the last gradient of a group is there, a reduce-scatter gives this process its parts.

Source: Zhao et al., "PyTorch FSDP", VLDB 2023, for parameters that are gathered and gradients that are scattered.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, ParamAOTInput
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from remat_explorer.capture.graph_rewrites import output_node
from remat_explorer.capture.operations.collectives import ALL_GATHER, REDUCE_SCATTER, offsets
from remat_explorer.capture.operations.naming import MODULE_PATH, SOURCE_FILE, SOURCE_LINE
from remat_explorer.capture.propagation import fake_mode
from remat_explorer.capture.sharding import ShardGroup, rows_of_part

aten = torch.ops.aten


def share_out(module: GraphModule, groups: Sequence[ShardGroup]) -> None:
    """Insert the collectives.

    Args:
        module: a clean joint graph, changed in place.
        groups: the parameters that are sharded.
    """
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
        for entry, offset in zip(read, offsets(numels, group.count), strict=True):
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
