"""Calls in place on gradients, where the memory may be that of a gradient which somebody else still reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from remat_explorer.capture.in_place import IN_PLACE, Overwriting
from remat_explorer.runtime.backward.strides import share_memory

_PLAIN = {in_place: plain for plain, in_place in IN_PLACE.items()}


def overwriting(target: Callable[..., Any]) -> Overwriting | None:
    """What a call of a body overwrites, and which call takes new memory instead; None of one that overwrites nothing.

    >>> print(overwriting(torch.ops.aten.relu_.default))
    aten.relu.default over argument 0
    """
    if isinstance(target, Overwriting):
        return target
    return Overwriting(_PLAIN[target]) if target in _PLAIN else None  # type: ignore[index]


def overwritten(
    plain: OpOverload,
    position: int,
    swapped: bool,
    rivals: Sequence[torch.Tensor],
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> torch.Tensor:
    """Write the result of a call over one of its arguments, or into new memory where that argument must stay.

    It must stay if one of ``rivals`` is in the same memory. It also stays where operands of one shape have different
    strides: the result of the plain call may then have the strides of another one, in a sum those of the first, which
    is the second of ``args`` if they are ``swapped``.

    >>> gradient = torch.ones(2)
    >>> overwritten(torch.ops.aten.neg.default, 0, False, [gradient], [gradient], {}), gradient
    (tensor([-1., -1.]), tensor([1., 1.]))
    """
    operand = args[position]
    others = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.shape == operand.shape]
    stays = any(share_memory(operand, rival) for rival in rivals)
    if stays or any(other.stride() != operand.stride() for other in others):
        return plain(*(reversed(args) if swapped else args), **kwargs)
    return Overwriting(plain, position)(*args, **kwargs)
