"""Masks in bits by Triton kernels, for CUDA: the same bytes as `activations` makes with PyTorch's own operators.

Without Triton, or on the CPU, `activations` goes on without them. Byte i of a mask holds entries 8 i to 8 i + 7, so
four bytes, read as one 32-bit word on a machine that stores the lowest byte first, hold 32 entries in order.
"""

from __future__ import annotations

import importlib.util

import torch

from remat_explorer.capture.alternatives.kernels.bits import mask_bytes
from remat_explorer.capture.alternatives.kernels.flat import flat

BYTES = 128  # of a mask, written by one program
ENTRIES = 1024  # of a gradient, written by one program
HAS_TRITON = importlib.util.find_spec("triton") is not None

if HAS_TRITON:  # pragma: no cover (compiled for a GPU, or interpreted)
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]

    @triton.jit
    def _pack(source, packed, entries, least, most, bounded: tl.constexpr, width: tl.constexpr):  # type: ignore[no-untyped-def]
        place = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
        bit = tl.arange(0, 8)
        entry = place[:, None] * 8 + bit[None, :]
        inside = entry < entries
        x = tl.load(source + entry, mask=inside, other=0.0)
        if source.dtype.element_ty.primitive_bitwidth == 16:  # Triton 3.9 interprets bfloat16 as whole numbers
            x = x.to(tl.float32)
        if bounded:  # noqa: SIM108 (decided when the kernel is compiled)
            truth = (x > least) & (x < most)
        else:
            truth = ~(x <= 0)  # true of NaN
        values = tl.where(truth & inside, 1, 0).to(tl.int32) << bit[None, :]
        tl.store(packed + place, tl.sum(values, axis=1).to(tl.uint8), mask=place * 8 < entries)

    @triton.jit
    def _mask(gradient, packed, result, entries, width: tl.constexpr):  # type: ignore[no-untyped-def]
        entry = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
        inside = entry < entries
        byte = tl.load(packed + (entry >> 3), mask=inside, other=0).to(tl.int32)
        keep = ((byte >> (entry & 7).to(tl.int32)) & 1) != 0
        g = tl.load(gradient + entry, mask=inside, other=0.0)
        tl.store(result + entry, tl.where(keep, g, 0.0).to(result.dtype.element_ty), mask=inside)


def serves(tensor: torch.Tensor) -> bool:
    """Whether these kernels can run on a tensor: it is on a CUDA device, and Triton is there.

    >>> serves(torch.ones(1))
    False
    """
    return HAS_TRITON and tensor.device.type == "cuda"


def packed_bits(activation: torch.Tensor, limits: tuple[float, float] | None) -> torch.Tensor:
    """`relu_bits`, or with limits `hardtanh_bits`, of a dense tensor on a CUDA device."""
    row = flat(activation)
    packed = torch.empty(mask_bytes(row.numel()), dtype=torch.uint8, device=row.device)
    least, most = limits or (0.0, 0.0)
    grid = ((packed.numel() + BYTES - 1) // BYTES,)
    if row.numel():
        _pack[grid](row, packed, row.numel(), least, most, limits is not None, BYTES)  # type: ignore[index]
    return packed


def masked(gradient: torch.Tensor, packed: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Write the gradient where the bit is 1, else 0, to ``out``, which may be ``gradient``."""
    entries = gradient.numel()
    if entries:
        grid = ((entries + ENTRIES - 1) // ENTRIES,)
        _mask[grid](flat(gradient), packed, flat(out), entries, ENTRIES)  # type: ignore[index]
    return out
