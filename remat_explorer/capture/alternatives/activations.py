"""ReLU and ReLU6 backward from the input or the output, and from masks in bits; dropout from its mask in bits.

Source: MONeT (Shah et al., ICLR 2021), appendix C: output-activated, and intermediate-activated by one bit an entry.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Node

from remat_explorer.capture.alternatives.exactness import reordered
from remat_explorer.capture.alternatives.kernels import activations, bits, dropout
from remat_explorer.capture.alternatives.site import Site, Surroundings
from remat_explorer.capture.captured_program import CapturedImplementation, step
from remat_explorer.capture.in_place import Overwriting

aten = torch.ops.aten
FORWARD = {
    aten.threshold_backward.default: aten.relu.default,
    aten.hardtanh_backward.default: aten.hardtanh.default,
}


def from_other_operand(site: Site) -> Iterator[CapturedImplementation]:
    """The backward of ReLU from the input instead of the output, of hardtanh from either: they give the same."""
    gradient, operand, *limits = site.args
    for other in _operands(site):
        if other is not operand and site.is_kept(other) and site.same_layout(operand, other):
            arguments = gradient, other, *limits
            target = site.call.target
            yield CapturedImplementation(
                "activations",
                "from the output" if other in _results(site) else "from the input",
                site.call,
                (step(site.call, target, *arguments),),  # type: ignore[arg-type]
                over=gradient,
                steps_over=(step(site.call, Overwriting(target), *arguments),),  # type: ignore[arg-type]
            )


def from_bits(site: Site) -> Iterator[CapturedImplementation]:
    """The backward of ReLU or hardtanh from a mask in bits, which an optional operation makes of input or output."""
    gradient, operand = site.args[:2]
    kept = [node for node in _operands(site) if site.is_kept(node) and site.same_layout(operand, node)]
    if not kept or not site.same_layout(gradient, operand) or _is_free(site, operand):
        return
    mask = _activation_mask(site, operand, kept)
    yield CapturedImplementation(
        "masks",
        "from bits",
        site.call,
        (step(site.call, activations.masked_gradient, gradient, mask),),
        over=gradient,
        steps_over=(step(site.call, activations.masked_gradient_in_place, gradient, mask),),
    )


def dropout_from_bits(site: Site) -> Iterator[CapturedImplementation]:
    """The backward of dropout from its mask in bits, which an optional operation makes of the mask in bytes."""
    gradient, mask, scale = site.args
    if not site.is_kept(mask) or not site.same_layout(gradient, mask) or _is_free(site, mask):
        return
    scene = site.scene
    packed = scene.made.get(("bits", mask))
    if packed is None:
        packed = _new_mask(scene, mask, bits.packed_mask, (mask,))
        scene.made["bits", mask] = packed
        scene.optional.append((scene.producer[scene.found.of_node[mask]], scene.add_optional(packed, (mask,))))
    arguments = gradient, packed, scale
    fake = site.fake(gradient)
    exact = fake.dtype in (torch.float32, torch.float64)  # in half precision, the scale is rounded first
    yield CapturedImplementation(
        "masks",
        "from bits",
        site.call,
        (step(site.call, dropout.dropout_gradient_from_bits, *arguments),),
        tolerance=0.0 if exact else reordered(fake),
        over=gradient,
        steps_over=(step(site.call, dropout.dropout_gradient_from_bits_in_place, *arguments),),
    )


def _activation_mask(site: Site, operand: Node, kept: list[Node]) -> Node:
    """The node of the mask, with the optional operation that makes it from any of ``kept``."""
    scene, limits = site.scene, site.args[2:]
    key = ("bits", frozenset(kept), limits)
    if key in scene.made:
        return scene.made[key]
    is_relu = site.call.target is aten.threshold_backward.default
    kernel, rest = (activations.relu_bits, ()) if is_relu else (activations.hardtanh_bits, limits)
    latest = max(kept, key=scene.found.order.__getitem__)
    made_by = max(
        (scene.producer[s] for s in map(scene.found.of_node.__getitem__, kept) if not s.resident),
        key=scene.found.operations.index,
    )
    mask = _new_mask(scene, latest, kernel, (operand, *rest))
    draft = scene.add_optional(mask, (operand,))
    draft.ways += [
        CapturedImplementation("masks", "from the input", mask, (step(mask, kernel, other, *rest),))
        for other in kept
        if other is not operand
    ]
    scene.optional.append((made_by, draft))
    scene.made[key] = mask
    return mask


def _new_mask(scene: Surroundings, after: Node, kernel, arguments) -> Node:
    fake = scene.fake(arguments[0])
    packed = fake.new_empty((bits.mask_bytes(fake.numel()),), dtype=torch.uint8)
    return scene.add_value(after, kernel, arguments, packed, "mask")


def _operands(site: Site) -> list[Node]:
    """The operand of the backward call, and what else gives the same: the input of a result, the result of an input."""
    operand = site.args[1]
    forward = FORWARD[site.call.target]  # type: ignore[index]
    if operand.target is forward and _limits(operand) == _limits_of_backward(site):
        return [operand, operand.args[0]]
    return [operand, *_results(site)]


def _results(site: Site) -> list[Node]:
    """The calls whose input, or result, the backward call reads."""
    operand = site.args[1]
    if operand.target is FORWARD[site.call.target]:  # type: ignore[index]
        return [operand]
    forward = FORWARD[site.call.target]  # type: ignore[index]
    return [n for n in operand.users if n.target is forward and _limits(n) == _limits_of_backward(site)]


def _limits(call: Node) -> tuple[float, ...]:
    if call.target is aten.relu.default:
        return ()
    least, most = (*call.args[1:], *(-1.0, 1.0)[len(call.args) - 1 :])
    return float(least), float(most)  # type: ignore[arg-type]


def _limits_of_backward(site: Site) -> tuple[float, ...]:
    if site.call.target is aten.threshold_backward.default:
        return () if site.args[2] == 0 else (float("nan"),)
    return tuple(map(float, site.args[2:]))


def _is_free(site: Site, operand: Node) -> bool:
    """Whether the operand stays in memory anyway, so that a mask of it would save nothing."""
    storage = site.scene.found.of_node[operand]
    return storage.resident or storage.persistent
