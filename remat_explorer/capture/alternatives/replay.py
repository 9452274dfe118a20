"""Dropout whose backward pass keeps no mask, but the state of the generator from which the mask can be drawn again.

The state is a value like any other, made by the forward operation. The runtime restores the state of a random
operation before it runs again, so whenever that operation runs, it makes the same state.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.kernels import dropout
from remat_explorer.capture.alternatives.kernels.flat import is_dense
from remat_explorer.capture.alternatives.site import Site, picked
from remat_explorer.capture.captured_program import CapturedImplementation, step

aten = torch.ops.aten
DTYPES = (torch.float32, torch.float64)  # in half precision, plain PyTorch has no mask in bytes on the CPU


def forward(site: Site) -> Iterator[CapturedImplementation]:
    """The result with the generator's state, without the mask."""
    result, state = picked(site.call, 0), _state(site, site.call)
    if result is None or state is None:
        return
    steps = (
        step(site.call, dropout.dropout_with_state, *site.args),
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
        (step(site.call, dropout.dropout_gradient_drawn_again, *arguments),),
        over=gradient,
        steps_over=(step(site.call, dropout.dropout_gradient_drawn_again_in_place, *arguments),),
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
    size = dropout.generator_state(fake.device).numel()
    if site.fake(mask).numel() <= size:
        return None
    scene = site.scene
    if ("state", drawn) not in scene.made:
        state = fake.new_empty((size,), dtype=torch.uint8, device="cpu")
        scene.made["state", drawn] = scene.add_value(mask, operator.getitem, (drawn, 1), state, "state")
    return scene.made["state", drawn]
