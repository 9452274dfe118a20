"""The strides of dimensions of one entry, as kernels give them.

No entry is found by such a stride, but a convolution chooses between layouts by all of them, that of a batch of one
included. What describes operators to FakeTensors leaves them to chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch._prims_common import make_channels_last_strides_for, make_contiguous_strides_for
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree as pytree

aten = torch.ops.aten
Strides = tuple[int, ...]
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.expand.default)
_COPIES = (aten.clone.default,)  # entry by entry, but laid out as their source
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def with_strides_of_kernel(
    mode: FakeTensorMode, func: Any, result: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """What a view, or an operation entry by entry, gives with the strides of its kernel.

    Args:
        mode: the mode of the FakeTensors.
        func, args, kwargs: the call.
        result: what was predicted for it, which is given back for every other call.
    """
    if not isinstance(result, torch.Tensor) or 1 not in result.shape or not _is_concerned(func):
        return result
    tensors = [part for part in pytree.arg_tree_leaves(*args, **kwargs) if isinstance(part, torch.Tensor)]
    if not all(type(n) is int for tensor in (*tensors, result) for n in (*tensor.shape, *tensor.stride())):
        return result  # sizes are not known
    if func in _VIEWS:
        strides = _of_view(func, args[0], args[1])
    else:
        strides = _of_iteration(tensors, tuple(result.shape), _has_number_for_tensor(func, args))
    if strides is None:
        return result
    long = [place for place, size in enumerate(result.shape) if size > 1]
    if strides == result.stride() or any(strides[place] != result.stride()[place] for place in long):
        return result  # as predicted, or of a kernel that takes its operands in another order
    with torch.no_grad(), mode:
        if func in _VIEWS:
            return args[0].as_strided(result.shape, strides, result.storage_offset())
        return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


@cache
def _is_concerned(func: Any) -> bool:
    """Whether the strides of a call are looked after here."""
    if not isinstance(func, OpOverload) or func in _COPIES:
        return False
    return func in _VIEWS or torch.Tag.pointwise in func.tags


def _of_view(view: OpOverload, source: torch.Tensor, sizes: Sequence[int]) -> Strides | None:
    """By the kernel for a tensor without content, and not by what Python has in its place while a step is traced.

    Returns:
        None where it refuses, as it does if a stride of the source was predicted otherwise than its kernel gives it.
    """
    with unset_fake_temporarily(), torch._C._DisablePythonDispatcher():
        try:
            return view(torch.empty_strided(source.shape, source.stride(), device="meta"), sizes).stride()
        except RuntimeError:
            return None


def _of_iteration(tensors: Sequence[torch.Tensor], shape: tuple[int, ...], has_number: bool) -> Strides:
    """By the rules of PyTorch's TensorIterator (aten/src/ATen/TensorIterator.cpp) for a result that it allocates."""
    if not has_number and all(tensor.shape == shape for tensor in tensors):
        if all(tensor.is_contiguous() for tensor in tensors):
            return make_contiguous_strides_for(shape)
        last = _CHANNELS_LAST.get(len(shape))
        if last is not None and all(tensor.is_contiguous(memory_format=last) for tensor in tensors):
            return make_channels_last_strides_for(shape)  # type: ignore[reportArgumentType]
        if all(tensor.stride() == tensors[0].stride() for tensor in tensors):
            return tensors[0].stride()
    return _dense(shape, _sorted_by_strides([_broadcast(tensor, shape) for tensor in tensors], shape))


def _sorted_by_strides(operands: Sequence[Strides], shape: tuple[int, ...]) -> list[int]:
    """Dimensions by ascending stride; the first operand that tells two apart decides, and else their order."""
    order = list(range(len(shape)))[::-1]
    for end in range(1, len(order)):
        place = end
        for before in range(end - 1, -1, -1):
            larger = _is_larger(order[before], order[place], operands, shape)
            if larger > 0:
                order[before], order[place] = order[place], order[before]
                place = before
            elif larger < 0:
                break
    return order


def _is_larger(one: int, other: int, operands: Sequence[Strides], shape: tuple[int, ...]) -> int:
    for strides in operands:
        if strides[one] == 0 or strides[other] == 0:
            continue
        if strides[one] != strides[other]:
            return 1 if strides[one] > strides[other] else -1
        if shape[one] > shape[other]:
            return 1
    return 0


def _broadcast(tensor: torch.Tensor, shape: tuple[int, ...]) -> Strides:
    """Strides in the shape of the result: 0 where entries are repeated."""
    missing = len(shape) - tensor.dim()
    sizes = zip(tensor.shape, shape[missing:], tensor.stride(), strict=True)
    return (0,) * missing + tuple(0 if have == 1 != wanted else stride for have, wanted, stride in sizes)


def _dense(shape: tuple[int, ...], order: Sequence[int]) -> Strides:
    """Strides without gaps, the dimensions of ``order`` from fast to slow."""
    strides, step = [0] * len(shape), 1
    for place in order:
        strides[place] = step
        step *= shape[place]
    return tuple(strides)


def _has_number_for_tensor(func: OpOverload, args: Sequence[Any]) -> bool:
    """Whether an operand is a number, which becomes a tensor without dimensions."""
    return any(place < len(args) and isinstance(args[place], int | float | complex) for place in _operands(func))


@cache
def _operands(func: OpOverload) -> list[int]:
    """The places of arguments that are tensors."""
    tensor = torch._C.TensorType.get()
    return [place for place, argument in enumerate(func._schema.arguments) if argument.type.isSubtypeOf(tensor)]
