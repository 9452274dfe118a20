"""FakeTensors for results whose size depends on content: they have the size that plain PyTorch gives for the inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from remat_explorer.capture.joint.content import Content, Contents, Derivation, Part, Unknown

aten = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)


class Reader(Protocol):
    """What reads contents while a model is traced: `remat_explorer.capture.joint.knowing_mode.Knowledge`."""

    mode: FakeTensorMode
    contents: Contents
    refused: Unknown | None

    def empty(
        self, size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor: ...
    def read_size(self, derivation: Derivation) -> list[torch.Tensor]: ...
    def read_value(self, derivation: Derivation) -> Any: ...
    def know(self, fake: torch.Tensor, content: Content | Unknown) -> torch.Tensor: ...


def sized_by_content(reader: Reader, operator: Any, args: Any, contents: Any) -> Any:
    """The results of a call whose size depends on all of its arguments, or None if one of those is unknown."""
    if unknown := _unknown(contents):
        reader.refused = unknown
        return None
    derivation = reader.contents.derivation(operator, *contents)
    results = reader.read_size(derivation)
    fakes = [reader.empty(r.shape, r.stride(), r.dtype, r.device) for r in results]
    for place, fake in enumerate(fakes):
        reader.know(fake, Part(derivation, place))
    return tuple(fakes) if len(operator._schema.returns) > 1 else fakes[0]


def _indexed(reader: Reader, operator: Any, args: Any, contents: Any) -> Any:
    """Entries that masks pick: as by the numbers of those entries."""
    source, indices = args
    masks = [index is not None and index.dtype in _MASKS for index in indices]
    if not any(masks):
        return None
    known = contents[0][1]
    if unknown := _unknown([content for content, is_mask in zip(known, masks, strict=True) if is_mask]):
        reader.refused = unknown
        return None
    numbers: list[Any] = []
    for index, content, is_mask in zip(indices, known, masks, strict=True):
        if is_mask:
            count = _count(reader, content)
            numbers += [reader.empty([count], [1], torch.int64, index.device) for _ in index.shape]
        else:
            numbers.append(index)
    with reader.mode:
        result = operator(source, numbers)
    return _known(reader, operator, contents, result)


def _selected(reader: Reader, operator: Any, args: Any, contents: Any) -> Any:
    source, mask = args
    if unknown := _unknown(contents[0][1]):
        reader.refused = unknown
        return None
    shape = list(torch.broadcast_shapes(source.shape, mask.shape))
    spread = Part(reader.contents.derivation(aten.expand.default, (contents[0][1], shape), {}), 0)
    result = reader.empty([_count(reader, spread)], [1], source.dtype, source.device)
    return _known(reader, operator, contents, result)


def _aligned(reader: Reader, operator: Any, args: Any, contents: Any) -> Any:
    """The CTC loss, and its table of alignments, which is as wide as the longest target."""
    probabilities, _, _, lengths, *_ = args
    if unknown := _unknown(contents[0][3]):
        reader.refused = unknown
        return None
    longest = Part(reader.contents.derivation(aten.max.default, (contents[0][3],), {}), 0)
    width = 2 * int(reader.read_value(reader.contents.derivation(aten._local_scalar_dense.default, (longest,), {}))) + 1
    time, batch = probabilities.shape[0], lengths.shape[0]
    kind = (probabilities.dtype, probabilities.device)
    losses = reader.empty([batch], [1], *kind)
    table = reader.empty([batch, time, width], [time * width, width, 1], *kind)
    return tuple(reader.know(result, _unknown(contents) or _SEVERAL) for result in (losses, table))


def _multiplied_in_groups(reader: Reader, operator: Any, args: Any, contents: Any) -> Any:
    """Products of the groups that offsets mark; rows begin at multiples of 16 bytes."""
    first, second, *others = args
    if first.dtype == torch.bfloat16:
        return None
    if first.dim() == 2 and second.dim() == 2:
        groups = others[0].shape[0]
        size = [groups, first.shape[0], second.shape[1]]
    elif first.dim() == 2 or second.dim() == 2:
        size = [first.shape[-2], second.shape[-1]]
    else:
        size = [first.shape[0], first.shape[1], second.shape[-1]]
    entries = 16 // first.element_size()
    row = math.ceil(size[-1] / entries) * entries
    strides = [row, 1] if len(size) == 2 else [size[1] * row, row, 1]
    return reader.know(reader.empty(size, strides, first.dtype, first.device), _unknown(contents) or _SEVERAL)


SIZED_RESULTS: dict[Any, Callable[[Reader, Any, Any, Any], Any]] = {
    aten.index.Tensor: _indexed,
    aten.masked_select.default: _selected,
    aten._ctc_loss.Tensor: _aligned,
    aten._grouped_mm.default: _multiplied_in_groups,
}
_SEVERAL = Unknown("a loss or a product of inputs alone")


def _known(reader: Reader, operator: Any, contents: Any, result: torch.Tensor) -> torch.Tensor:
    if unknown := _unknown(contents):
        return reader.know(result, unknown)
    return reader.know(result, Part(reader.contents.derivation(operator, *contents), 0))


def _unknown(contents: Any) -> Unknown | None:
    return next((leaf for leaf in pytree.tree_leaves(contents) if isinstance(leaf, Unknown)), None)


def _count(reader: Reader, mask: Content) -> int:
    """How many entries of a mask are true."""
    (numbers,) = reader.read_size(reader.contents.derivation(aten.nonzero.default, (mask,), {}))
    return numbers.shape[0]
