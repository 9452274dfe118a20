"""How far the results of a plan are from those of plain autograd."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from remat_explorer.runtime.outcome import StepOutcome


@dataclass(frozen=True)
class Comparison:
    """Largest absolute differences of loss (or outputs) and gradients, and what is equal bit for bit."""

    loss_difference: float
    gradient_difference: float
    gradients_equal: bool
    buffers_equal: bool
    random_state_equal: bool

    @property
    def equal(self) -> bool:
        """Whether everything is equal bit for bit."""
        return self.loss_difference == 0 and self.gradients_equal and self.buffers_equal and self.random_state_equal

    def __str__(self) -> str:
        return (
            f"gradients {'equal' if self.gradients_equal else 'DIFFER'}: max difference {self.gradient_difference:g}\n"
            f"loss: difference {self.loss_difference:g}; buffers {'equal' if self.buffers_equal else 'DIFFER'}; "
            f"random state {'equal' if self.random_state_equal else 'DIFFERS'}"
        )


@dataclass(frozen=True, eq=False)
class Final:
    """What a training step leaves behind: its outcome, and the random state of each generator."""

    outcome: StepOutcome
    states: list[np.ndarray]


def compare(final: Final, reference: Final, initial: dict[str, torch.Tensor]) -> Comparison:
    """Compare what a plan leaves behind with what plain autograd does.

    Args:
        final: the plan's; it has only the buffers that a training step writes.
        reference: plain autograd's, with every buffer.
        initial: contents of the buffers before the step.
    """
    mine, theirs = final.outcome, reference.outcome
    buffers = {**initial, **mine.buffers}
    same_names = mine.gradients.keys() == theirs.gradients.keys()
    pairs = [(mine.gradients[name], theirs.gradients[name]) for name in mine.gradients.keys() & theirs.gradients.keys()]
    return Comparison(
        max(difference(*pair) for pair in zip(mine.outputs, theirs.outputs, strict=True)),
        max((difference(*pair) for pair in pairs), default=0.0) if same_names else float("inf"),
        same_names and all(same(*pair) for pair in pairs),
        buffers.keys() == theirs.buffers.keys() and all(same(buffers[n], theirs.buffers[n]) for n in buffers),
        all(np.array_equal(*pair) for pair in zip(final.states, reference.states, strict=True)),
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
