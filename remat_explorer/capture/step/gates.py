"""Gates of recurrent layers with the numbers that PyTorch gives them.

PyTorch computes a sigmoid of whole vectors and that of single entries in two ways, whose last digits differ. Which
entries fill vectors depends on the layout: a gate of GRU is a part of each row of a larger tensor, and is computed in
place there. A functional graph has every gate in rows of its own, and would compute other entries as vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
VECTORS = 128  # bytes; a loop takes two vectors at a time, of 64 bytes at most
UNDIVIDED = 32768  # entries, the grain of PyTorch's loops
LAYOUT = "remat_explorer.layout"  # key of a node's meta: the strides in which plain PyTorch computes it


class GateLayouts(TorchDispatchMode):
    """While entered, notes at each node of a trace that stands for a sigmoid in place the strides of its tensor."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        tracing = get_proxy_mode()
        if func is aten.sigmoid_.default and tracing is not None and _layout_matters(args[0]):
            made = next(iter(reversed(tracing.tracer.graph.nodes)))
            assert made.target is aten.sigmoid.default, made
            made.meta[LAYOUT] = args[0].stride()
        return result


def _layout_matters(gate: torch.Tensor) -> bool:
    """Not where each row is made of whole vectors, and the tensor is too small to be divided among threads."""
    whole = gate.shape[-1] * gate.element_size() % VECTORS == 0 and gate.numel() <= UNDIVIDED
    return not gate.is_contiguous() and not whole


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
