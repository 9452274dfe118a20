"""What sharded parameters take of other processes: an all-gather of parts, and a reduce-scatter of gradients.

Both send what FullyShardedDataParallel sends, in the same order, so that sums are the same bit for bit. What a
library of collectives has touched may be held by its threads for a while; it is emptied here, so that memory is given
back when the plan says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from remat_explorer.capture.content_tracking import NAMESPACE
from remat_explorer.capture.sharding import rows_of_part

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


def offsets(numels: Sequence[int], count: int) -> list[int]:
    """Where each parameter begins in what `ALL_GATHER` gives.

    >>> offsets([4, 2], 3)
    [0, 12]
    """
    return [count * before for before in itertools.accumulate(numels, initial=0)][: len(numels)]
