"""Masks of one bit an entry: eight truth values in a byte.

Source: Gist (Jain et al., ISCA 2018), section 4.1, the binarized mask of ReLU. Eight booleans of a byte each are one
64-bit word here; one multiplication gathers their lowest bits in the highest byte, another spreads a byte over eight.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from remat_explorer.capture.alternatives.kernels.flat import CHUNK, chunks, flat

_GATHER = 0x0102040810204080  # brings the lowest bit of byte j to bit 56 + j
_SPREAD = 0x0101010101010101  # a byte eight times
_PICK = 0x8040201008040201 - (1 << 64)  # bit j of byte j, as a signed number
_WEIGHTS = (1, 2, 4, 8, 16, 32, 64, 128)


def mask_bytes(entries: int) -> int:
    """Bytes of a mask of that many entries.

    >>> mask_bytes(8), mask_bytes(9)
    (1, 2)
    """
    return (entries + 7) // 8


def pack(mask: torch.Tensor, out: torch.Tensor) -> None:
    """Write a row of booleans as bits: entry 8 i + j becomes bit j of byte i. Bits after the last entry are 0.

    Args:
        mask: bool of shape (n,), contiguous.
        out: uint8 of shape (mask_bytes(n),).

    >>> packed = torch.empty(2, dtype=torch.uint8)
    >>> pack(torch.tensor([True, False, True, False, False, False, False, False, True]), packed)
    >>> packed.tolist()
    [5, 1]
    """
    whole = mask.numel() // 8
    if whole:
        # the product wraps around and the shift keeps its sign; the lowest byte of the result is right all the same
        words = mask[: 8 * whole].view(torch.int64) * _GATHER
        out[:whole].copy_(words.bitwise_right_shift_(56))
    last = mask[8 * whole :]
    if not last.numel():
        return
    if last.device.type != "cpu":  # a list would have to wait for the device
        pack(functional.pad(last, (0, 8 - last.numel())), out[whole:])
    else:
        rest = last.tolist()
        out[whole] = sum(weight for weight, bit in zip(_WEIGHTS, rest, strict=False) if bit)


def unpack(packed: torch.Tensor, out: torch.Tensor) -> None:
    """Write bits as booleans.

    Args:
        packed: uint8 of shape (n,), as `pack` gives it.
        out: bool of shape (8 n,), contiguous.

    >>> mask = torch.empty(8, dtype=torch.bool)
    >>> unpack(torch.tensor([5], dtype=torch.uint8), mask)
    >>> mask.nonzero().flatten().tolist()
    [0, 2]
    """
    words = out.view(torch.int64)
    words.copy_(packed)
    words.mul_(_SPREAD).bitwise_and_(_PICK)
    out.view(torch.uint8).ne_(0)


def factors(packed: torch.Tensor, like: torch.Tensor) -> Iterator[tuple[slice, torch.Tensor]]:
    """The bits of a mask as 0 and 1, a chunk at a time, each in the place of the one before.

    Args:
        packed: uint8 of shape (mask_bytes(n),), as `pack` gives it.
        like: of shape (n,), with the type and the device of the factors.

    >>> mask = torch.tensor([5, 1], dtype=torch.uint8)
    >>> [(part, factor.tolist()) for part, factor in factors(mask, torch.zeros(9))]
    [(slice(0, 9, None), [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])]
    """
    size = min(CHUNK, like.numel())
    truth = torch.empty(8 * mask_bytes(size), dtype=torch.bool, device=like.device)
    factor = torch.empty(size, dtype=like.dtype, device=like.device)
    for part in chunks(like.numel()):
        count, bits = part.stop - part.start, packed[part.start // 8 : mask_bytes(part.stop)]
        unpack(bits, truth[: 8 * bits.numel()])
        yield part, factor[:count].copy_(truth[:count])


def packed_mask(mask: torch.Tensor) -> torch.Tensor:
    """The bits of a whole dense mask, in the order of its storage.

    >>> packed_mask(torch.ones(2, 5, dtype=torch.bool)).tolist()
    [255, 3]
    """
    row = flat(mask)
    packed = torch.empty(mask_bytes(row.numel()), dtype=torch.uint8, device=mask.device)
    for part in chunks(row.numel()):
        pack(row[part], packed[part.start // 8 : mask_bytes(part.stop)])
    return packed
