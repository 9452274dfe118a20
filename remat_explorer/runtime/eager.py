"""Plain autograd, the reference for results, time and memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from remat_explorer.capture.joint import Loss, TrainingStep
from remat_explorer.capture.memory_meter import is_out_of_memory
from remat_explorer.capture.placement import Placed
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.interpreter import Outcome


class Eager:
    """A copy of a model and its loss that plain autograd can train."""

    def __init__(self, placed: Placed, loss: Loss | None) -> None:
        model = copy.deepcopy(placed.model)
        self._step = TrainingStep(model, placed.args, placed.kwargs, loss)
        self._tensors = self._step.tensors(placed.args, placed.kwargs)
        self._initial = {name: buffer.clone() for name, buffer in model.named_buffers()}
        self.reset()

    def reset(self) -> None:
        """Buffers as at the start, no gradients."""
        for parameter in self._step.parameters():
            parameter.grad = None
        for name, content in self._initial.items():
            self._step.model.get_buffer(name).copy_(content)

    def run(self) -> Any:
        """One forward and backward pass; the loss.

        Raises:
            ExecutionError: if memory runs out.
        """
        try:
            loss = self._step(*self._tensors)
            loss.backward()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise ExecutionError(
                "memory ran out in plain PyTorch, which keeps everything and is the reference here"
            ) from error
        return loss.detach()

    def outcome(self, loss: torch.Tensor, to: Callable[[torch.Tensor], torch.Tensor]) -> Outcome:
        """Copies of what `run` left behind, each passed through ``to``."""
        model = self._step.model
        gradients = {n: to(p.grad) for n, p in model.named_parameters() if p.grad is not None}
        return Outcome(to(loss), gradients, {name: to(buffer) for name, buffer in model.named_buffers()})
