"""ReLU and ReLU6 whose backward pass needs one bit an entry.

The backward kernels of PyTorch choose between the gradient and 0; so do these. A product with a mask would make NaN
of an infinite gradient. Bits lie in the order of the storage: the gradient must have the strides of the activation.
"""

from __future__ import annotations

import torch

from remat_explorer.capture.alternatives.kernels import gpu_masks
from remat_explorer.capture.alternatives.kernels.bits import factors, mask_bytes, pack
from remat_explorer.capture.alternatives.kernels.flat import CHUNK, chunks, flat
from remat_explorer.errors import ExecutionError

aten = torch.ops.aten


def relu_bits(activation: torch.Tensor) -> torch.Tensor:
    """One bit an entry: not (x <= 0), for the input or the output of a ReLU, which give the same.

    Bit-equal: of NaN it is 1, and the gradient passes, as in `threshold_backward`.

    >>> relu_bits(torch.tensor([1.0, -1.0, 0.0, float("nan")])).tolist()
    [9]
    """
    if gpu_masks.serves(activation):
        return gpu_masks.packed_bits(activation, None)
    row, packed, mask = _prepared(activation)
    for part in chunks(row.numel()):
        truth = mask[: part.stop - part.start]
        torch.le(row[part], 0, out=truth)
        pack(truth.logical_not_(), packed[part.start // 8 : mask_bytes(part.stop)])
    return packed


def hardtanh_bits(activation: torch.Tensor, least: float, most: float) -> torch.Tensor:
    """One bit an entry: least < x < most, for the input or the output of a hardtanh; ReLU6 has the limits 0 and 6.

    Bit-equal but for NaN, of which it is 0. PyTorch's kernel is not of one mind there: on the CPU its vectors drop the
    gradient, and what is left over after the last whole vector passes it.

    >>> hardtanh_bits(torch.tensor([1.0, 0.0, 7.0, 6.0, 5.0]), 0.0, 6.0).tolist()
    [17]
    """
    if gpu_masks.serves(activation):
        return gpu_masks.packed_bits(activation, (least, most))
    row, packed, mask = _prepared(activation)
    below = torch.empty_like(mask)
    for part in chunks(row.numel()):
        truth, other = mask[: part.stop - part.start], below[: part.stop - part.start]
        torch.gt(row[part], least, out=truth)
        torch.lt(row[part], most, out=other)
        pack(truth.logical_and_(other), packed[part.start // 8 : mask_bytes(part.stop)])
    return packed


def _prepared(activation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    row = flat(activation)
    packed = torch.empty(mask_bytes(row.numel()), dtype=torch.uint8, device=row.device)
    return row, packed, torch.empty(min(CHUNK, row.numel()), dtype=torch.bool, device=row.device)


def masked_gradient(gradient: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """The gradient where the bit is 1, else 0: backward of ReLU and hardtanh. Bit-equal, NaN and infinities included.

    Args:
        gradient: dense, with the strides of the activation.
        packed: what `relu_bits` or `hardtanh_bits` gave.
    """
    return _masked(gradient, packed, torch.empty_like(gradient))


def masked_gradient_in_place(gradient: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """As `masked_gradient`, over ``gradient``."""
    return _masked(gradient, packed, gradient)


def _masked(gradient: torch.Tensor, packed: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """`threshold_backward` with the bits as activation, chunk by chunk; `torch.where` is many times slower."""
    source, target = flat(gradient), flat(out)
    if packed.numel() != mask_bytes(source.numel()):
        raise ExecutionError(f"a mask of {packed.numel()} bytes does not belong to {source.numel()} entries")
    if gpu_masks.serves(gradient):
        return gpu_masks.masked(gradient, packed, out)
    for part, factor in factors(packed, source):
        aten.threshold_backward.grad_input(source[part], factor, 0, grad_input=target[part])
    return out
