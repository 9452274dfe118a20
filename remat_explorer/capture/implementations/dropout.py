"""Dropout whose backward pass needs one bit an entry instead of one byte, or draws its mask again.

To draw it again takes the state of the generator, which is a value like any other, made by the forward operation. The
runtime restores the state of a random operation before it runs again, so whenever that operation runs, it makes the
same state.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.implementations.call_site import Site, picked, reordered
from remat_explorer.capture.implementations.chunks import CHUNK, chunks, flat, is_dense
from remat_explorer.capture.implementations.masks import factors, is_free, new_mask, packed_mask

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64)  # in half precision, plain PyTorch has no mask in bytes on the CPU


def dropout_from_bits(site: Site) -> Iterator[CapturedImplementation]:
    """The backward of dropout from its mask in bits, which an optional operation makes of the mask in bytes."""
    gradient, mask, scale = site.args
    if not site.is_kept(mask) or not site.same_layout(gradient, mask) or is_free(site, mask):
        return
    scene = site.scene
    packed = scene.made.get(("bits", mask))
    if packed is None:
        packed = new_mask(scene, mask, packed_mask, (mask,))
        scene.made["bits", mask] = packed
        scene.optional.append((scene.producer[scene.found.of_node[mask]], scene.add_optional(packed, (mask,))))
    arguments = gradient, packed, scale
    fake = site.fake(gradient)
    exact = fake.dtype in (torch.float32, torch.float64)  # in half precision, the scale is rounded first
    yield CapturedImplementation(
        "masks",
        "from bits",
        site.call,
        (step(site.call, dropout_gradient_from_bits, *arguments),),
        tolerance=0.0 if exact else reordered(fake),
        over=gradient,
        steps_over=(step(site.call, dropout_gradient_from_bits_in_place, *arguments),),
    )


def forward(site: Site) -> Iterator[CapturedImplementation]:
    """The result with the generator's state, without the mask."""
    result, state = picked(site.call, 0), _state(site, site.call)
    if result is None or state is None:
        return
    steps = (
        step(site.call, dropout_with_state, *site.args),
        step(result, operator.getitem, site.call, 0),
        step(state, operator.getitem, site.call, 1),
    )
    yield CapturedImplementation("replay", "with state", site.call, steps)


def backward(site: Site) -> Iterator[CapturedImplementation]:
    """The gradient with the mask drawn again."""
    gradient, mask, scale = site.args
    drawn: Any = mask.args[0] if isinstance(mask, Node) and mask.target is operator.getitem else None
    if drawn is None or drawn.target is not aten.native_dropout.default or not site.same_layout(gradient, mask):
        return
    state = _state(site, drawn) if drawn in site.scene.caller else None
    if state is None:
        return
    arguments = gradient, state, drawn.args[1], scale
    yield CapturedImplementation(
        "replay",
        "drawn again",
        site.call,
        (step(site.call, dropout_gradient_drawn_again, *arguments),),
        over=gradient,
        steps_over=(step(site.call, dropout_gradient_drawn_again_in_place, *arguments),),
        launches=3,
    )


def _state(site: Site, drawn: Node) -> Node | None:
    """The node of the state from which a dropout drew, made once; None where the mask is no larger."""
    source, probability, train = drawn.args
    mask, fake = picked(drawn, 1), site.fake(source)  # type: ignore[arg-type]
    if mask is None or train is False or not 0 < float(probability) < 1:  # type: ignore[arg-type]
        return None
    if fake.dtype not in DTYPES or not is_dense(fake) or fake.storage_offset():
        return None
    size = generator_state(fake.device).numel()
    if site.fake(mask).numel() <= size:
        return None
    scene = site.scene
    if ("state", drawn) not in scene.made:
        state = fake.new_empty((size,), dtype=torch.uint8, device="cpu")
        scene.made["state", drawn] = scene.add_value(mask, operator.getitem, (drawn, 1), state, "state")
    return scene.made["state", drawn]


def dropout_gradient_from_bits(gradient: torch.Tensor, packed: torch.Tensor, scale: float) -> torch.Tensor:
    """What `native_dropout_backward` gives: gradient * (mask * scale). Bit-equal, NaN of infinity times 0 included.

    The gradient is dense, with the strides of the mask, which `packed_mask` has packed; ``scale`` is 1 / (1 - p).
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
    """The result of `native_dropout`, and the state of the generator from which its mask was drawn. Bit-equal."""
    state = generator_state(source.device)
    return aten.native_dropout.default(source, probability, train)[0], state


def dropout_gradient_drawn_again(
    gradient: torch.Tensor, state: torch.Tensor, probability: float, scale: float
) -> torch.Tensor:
    """What `native_dropout_backward` gives, with the mask drawn once more. Bit-equal; the generator stays as it is.

    The mask depends on the shape and strides of what was dropped from, which the gradient has; ``scale`` is 1 / (1 -
    p).
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
