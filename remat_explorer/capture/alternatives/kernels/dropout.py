"""Dropout whose backward pass needs one bit an entry instead of one byte."""

from __future__ import annotations

import torch

from remat_explorer.capture.alternatives.kernels.bits import mask_bytes, unpack
from remat_explorer.capture.alternatives.kernels.flat import CHUNK, chunks, flat

aten = torch.ops.aten


def dropout_gradient_from_bits(gradient: torch.Tensor, packed: torch.Tensor, scale: float) -> torch.Tensor:
    """What `native_dropout_backward` gives: gradient * (mask * scale). Bit-equal, NaN of infinity times 0 included.

    Args:
        gradient: dense, with the strides of the mask.
        packed: the mask of `native_dropout`, as `packed_mask` gives it.
        scale: 1 / (1 - probability).
    """
    return _scaled(gradient, packed, scale, torch.empty_like(gradient))


def dropout_gradient_from_bits_in_place(gradient: torch.Tensor, packed: torch.Tensor, scale: float) -> torch.Tensor:
    """As `dropout_gradient_from_bits`, over ``gradient``."""
    return _scaled(gradient, packed, scale, gradient)


def _scaled(gradient: torch.Tensor, packed: torch.Tensor, scale: float, out: torch.Tensor) -> torch.Tensor:
    source, target = flat(gradient), flat(out)
    size = min(CHUNK, source.numel())
    truth = torch.empty(8 * mask_bytes(size), dtype=torch.bool, device=gradient.device)
    factor = torch.empty(size, dtype=gradient.dtype, device=gradient.device)
    for part in chunks(source.numel()):
        count, bits = part.stop - part.start, packed[part.start // 8 : mask_bytes(part.stop)]
        unpack(bits, truth[: 8 * bits.numel()])
        factor[:count].copy_(truth[:count]).mul_(scale)
        torch.mul(source[part], factor[:count], out=target[part])
    return out
