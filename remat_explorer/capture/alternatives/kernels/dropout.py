"""Dropout whose backward pass needs one bit an entry instead of one byte, or draws its mask again."""

from __future__ import annotations

from functools import partial

import torch

from remat_explorer.capture.alternatives.kernels.bits import factors
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
    for part, factor in factors(packed, source):
        torch.mul(source[part], factor.mul_(scale), out=target[part])
    return out


def dropout_with_state(
    source: torch.Tensor, probability: float, train: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The result of `native_dropout`, and the state of the generator from which its mask was drawn. Bit-equal.

    Args:
        source: any tensor.
        probability: of an entry to become 0.
        train: True or None; there is no mask otherwise.
    """
    state = generator_state(source.device)
    return aten.native_dropout.default(source, probability, train)[0], state


def dropout_gradient_drawn_again(
    gradient: torch.Tensor, state: torch.Tensor, probability: float, scale: float
) -> torch.Tensor:
    """What `native_dropout_backward` gives, with the mask drawn once more. Bit-equal; the generator stays as it is.

    Args:
        gradient: with the shape and strides of what was dropped from: the mask depends on them.
        state: what `dropout_with_state` gave.
        probability: of an entry to become 0.
        scale: 1 / (1 - probability).
    """
    return _times_mask(gradient, _drawn_again(gradient, state, probability), scale, torch.empty_like(gradient))


def dropout_gradient_drawn_again_in_place(
    gradient: torch.Tensor, state: torch.Tensor, probability: float, scale: float
) -> torch.Tensor:
    """As `dropout_gradient_drawn_again`, over ``gradient``."""
    return _times_mask(gradient, _drawn_again(gradient, state, probability), scale, gradient)


def generator_state(device: torch.device) -> torch.Tensor:
    """The state of a device's generator: uint8, on the CPU, 5056 bytes for the CPU and 16 for CUDA (Philox)."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _drawn_again(like: torch.Tensor, state: torch.Tensor, probability: float) -> torch.Tensor:
    """The mask that `native_dropout` drew from that state for a tensor with the shape and strides of ``like``."""
    device = like.device
    set_state = torch.set_rng_state if device.type != "cuda" else partial(torch.cuda.set_rng_state, device=device)
    now = generator_state(device)
    try:
        set_state(state)
        if device.type == "cuda":  # one fused kernel, which draws as many numbers at a time as the tensor allows
            return aten.native_dropout.default(like, probability, True)[1]
        return torch.empty_like(like, dtype=torch.bool).bernoulli_(1 - probability)
    finally:
        set_state(now)


def _times_mask(gradient: torch.Tensor, mask: torch.Tensor, scale: float, out: torch.Tensor) -> torch.Tensor:
    """gradient * (mask * scale), a chunk at a time: a whole second factor would be as large as the gradient."""
    if gradient.device.type == "cuda":  # PyTorch's kernel needs no room there, and rounds in its own way
        product = aten.native_dropout_backward.default(gradient, mask, scale)
        return product if out is not gradient else gradient.copy_(product)
    source, bits, target = flat(gradient), flat(mask), flat(out)
    factor = torch.empty(min(CHUNK, source.numel()), dtype=gradient.dtype)
    for part in chunks(source.numel()):
        count = part.stop - part.start
        torch.mul(source[part], factor[:count].copy_(bits[part]).mul_(scale), out=target[part])
    return out
