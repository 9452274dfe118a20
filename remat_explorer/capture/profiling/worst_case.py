"""Bodies with the data for which they need the most workspace, where that depends on data.

`y[mask] = 0` makes a list of the places that the mask names. A profile sees one mask, training others: the workspace is
that of a mask that names all places.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.node import map_arg

from remat_explorer.capture.operations.program import Body, Call, Program

aten = torch.ops.aten
ASSIGNING = (aten.index_put.default, aten._unsafe_index_put.default)


def worst_case(body: Body, program: Program, device: torch.device) -> Body | None:
    """The body with masks that name all places, or None where no call of it takes a mask that could."""
    calls = tuple(_with_all_places(call, program, device) for call in body.calls)
    return None if calls == body.calls else dataclasses.replace(body, calls=calls)


def _with_all_places(call: Call, program: Program, device: torch.device) -> Call:
    if call.target not in ASSIGNING or call.arguments is not None:
        return call
    tensor, indices, values = (_fakes(argument, program) for argument in call.args[:3])
    masks = [None if index is None or index.dtype != torch.bool else index for index in indices]
    if not any(mask is not None for mask in masks) or not _fits(tensor, indices, values):
        return call
    full = [None if mask is None else torch.ones(mask.shape, dtype=torch.bool, device=device) for mask in masks]
    target: Any = call.target

    def assign(tensor: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, *others: Any) -> torch.Tensor:
        chosen = [index if mask is None else mask for index, mask in zip(indices, full, strict=True)]
        return target(tensor, chosen, values, *others)

    return dataclasses.replace(call, target=assign)


def _fakes(argument: Any, program: Program) -> Any:
    return map_arg(argument, program.fakes.__getitem__)


def _fits(tensor: torch.Tensor, indices: Sequence[Any], values: torch.Tensor) -> bool:
    """Whether as many values as there are places can be assigned: one for all, or a row for each entry of a mask."""
    if values.numel() == 1:
        return True
    if len(indices) != 1:
        return False
    places = (indices[0].numel(), *tensor.shape[indices[0].dim() :])
    return values.dim() <= len(places) and all(
        size in (1, room) for size, room in zip(reversed(values.shape), reversed(places), strict=False)
    )
