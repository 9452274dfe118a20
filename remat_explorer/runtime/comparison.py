"""How far the results of a plan are from those of plain autograd."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from remat_explorer.runtime.outcome import Outcome


@dataclass(frozen=True)
class Comparison:
    """Largest absolute differences of loss (or outputs) and gradients, and whether everything is equal bit for bit."""

    loss_difference: float
    gradient_difference: float
    gradients_equal: bool
    buffers_equal: bool


def compare(found: Outcome, reference: Outcome, initial: dict[str, torch.Tensor]) -> Comparison:
    """Compare a plan's outcome with plain autograd's.

    Args:
        found: the plan's; it has only the buffers that a training step writes.
        reference: plain autograd's, with every buffer.
        initial: contents of the buffers before the step.
    """
    buffers = {**initial, **found.buffers}
    same_names = found.gradients.keys() == reference.gradients.keys()
    pairs = [(found.gradients[n], reference.gradients[n]) for n in found.gradients.keys() & reference.gradients.keys()]
    return Comparison(
        max(difference(*pair) for pair in zip(found.outputs, reference.outputs, strict=True)),
        max((difference(*pair) for pair in pairs), default=0.0) if same_names else float("inf"),
        same_names and all(same(*pair) for pair in pairs),
        buffers.keys() == reference.buffers.keys() and all(same(buffers[n], reference.buffers[n]) for n in buffers),
    )


def difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """Largest absolute difference, infinite where shapes differ or only one of two entries is a number."""
    if first.shape != second.shape:
        return float("inf")
    if same(first, second):
        return 0.0
    gap = (first.double().cpu() - second.double().cpu()).abs().max().item()
    return gap if gap == gap else float("inf")


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal in every entry; entries that are no number in both count as equal."""
    first, second = first.cpu(), second.cpu()
    if first.shape != second.shape:
        return False
    equal = first == second
    return bool((equal | (first.isnan() & second.isnan())).all()) if first.is_floating_point() else bool(equal.all())
