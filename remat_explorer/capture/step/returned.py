"""What a model returns, taken apart into tensors and put together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from remat_explorer.capture.step.nesting import map_leaves, tensors_in

_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout)


class Slot(int):
    """Where a tensor was: the number of the result that belongs there, or -1 where a plan gives none."""


@dataclass(frozen=True)
class Returned:
    """The nesting that a model returns, with a `Slot` for each tensor.

    Args:
        nesting: containers as the model made them. Of what is neither a container nor a tensor, numbers and text stay;
            an object of another kind, such as a cache, may hold tensors of the trace and becomes None.
        is_loss: whether the one result is the loss; otherwise the loss is computed elsewhere, from these outputs.
        other_losses: how many more scalars there were beside a loss that could be losses, and that a plan leaves out.

    >>> Returned({"logits": Slot(0), "state": Slot(-1), "steps": 3}, False).filled([torch.ones(2)])
    {'logits': tensor([1., 1.]), 'state': None, 'steps': 3}
    """

    nesting: Any
    is_loss: bool
    other_losses: int = field(default=0, repr=False)

    @staticmethod
    def of(output: Any, slot: Callable[[torch.Tensor], Slot], is_loss: bool) -> Returned:
        """What is returned by a model that gave ``output``, with ``slot`` for each tensor in it."""
        left_out = (tensor for tensor in tensors_in(output) if is_loss and slot(tensor) < 0)
        other_losses = sum(tensor.numel() == 1 and tensor.requires_grad for tensor in left_out)

        def visit(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return slot(leaf)
            return leaf if isinstance(leaf, _PLAIN) else None

        return Returned(map_leaves(visit, output), is_loss, other_losses)

    def filled(self, results: Sequence[torch.Tensor]) -> Any:
        """The nesting with the results in their places."""

        def visit(leaf: Any) -> Any:
            if not isinstance(leaf, Slot):
                return leaf
            return results[leaf] if leaf >= 0 else None

        return map_leaves(visit, self.nesting)
