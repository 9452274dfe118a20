"""Calls in place with the numbers that PyTorch gives them, for tensors of other strides.

PyTorch computes a sigmoid of whole vectors and that of single entries in two ways, whose last digits differ. Which
entries fill vectors depends on the layout: a gate of GRU is a part of each row of a larger tensor, and is computed in
place there. A functional graph has every gate in rows of its own, and would compute other entries as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
VECTORS = 128  # bytes; a loop takes two vectors at a time, of 64 bytes at most
UNDIVIDED = 32768  # entries, the grain of PyTorch's loops


def layout_matters(gate: torch.Tensor, strides: Sequence[int]) -> bool:
    """Whether a sigmoid in ``strides`` has other numbers than one without gaps.

    It has not where each row is made of whole vectors, and the tensor is too small to be divided among threads.
    """
    whole = gate.shape[-1] * gate.element_size() % VECTORS == 0 and gate.numel() <= UNDIVIDED
    return not (whole and strides[-1] == 1)


def sigmoid_in_layout(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The sigmoid of ``x``, contiguous, with the numbers of one that is computed in ``strides``.

    >>> gates = torch.randn(3, 24)
    >>> expected = gates.clone()[:, :8].sigmoid_()
    >>> torch.equal(sigmoid_in_layout(gates[:, :8].contiguous(), (24, 1)), expected)
    True
    """
    out = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    return aten.sigmoid.out(x, out=out).contiguous()


def sigmoid_in_layout_(x: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """The same, written over ``x``."""
    out = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    return x.copy_(aten.sigmoid.out(x, out=out))


def written_in_layout(
    kernel: Callable[..., Any],
    strides: Sequence[int],
    result: Sequence[int],
    x: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """What ``kernel`` writes over a copy of ``x`` in ``strides``, in the strides ``result``.

    >>> _ = torch.manual_seed(0)
    >>> expected = torch.zeros(3, 24)[:, :8].normal_()
    >>> _ = torch.manual_seed(0)
    >>> found = written_in_layout(aten.normal_.default, (24, 1), (8, 1), torch.zeros(3, 8))
    >>> torch.equal(found, expected)
    True
    """
    out = torch.empty_strided(x.shape, tuple(strides), dtype=x.dtype, device=x.device).copy_(x)
    kernel(out, *args, **kwargs)
    made = torch.empty_strided(x.shape, tuple(result), dtype=x.dtype, device=x.device)
    return made.copy_(out)
