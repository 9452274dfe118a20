"""Plain autograd, the reference for results, time and memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.explain import first_line
from remat_explorer.capture.losses import Loss
from remat_explorer.capture.memory_meter import is_out_of_memory
from remat_explorer.capture.placement import Placed
from remat_explorer.capture.step import TrainingStep
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.interpreter import Outcome


class Eager:
    """A model and its loss that plain autograd can train; the person's own tensors stay as they are.

    Parameters have the person's content and gradients of their own, buffers are copies. The model itself is not
    copied: it may hold what no copy can be made of. What `torch.compile` wraps runs without it, and autocast goes
    without its cache of cast weights.
    """

    def __init__(self, placed: Placed, loss: Loss | None) -> None:
        self._step = TrainingStep(placed.model, placed.args, placed.kwargs, loss)
        self._tensors = self._step.tensors(placed.args, placed.kwargs)
        self._initial = {name: buffer.clone() for name, buffer in self._step.named_buffers()}
        self._step.hold(lambda tensor: tensor.detach() if isinstance(tensor, torch.nn.Parameter) else tensor.clone())
        self.reset()

    def reset(self) -> None:
        """Buffers as at the start, no gradients."""
        for parameter in self._step.parameters():
            parameter.grad = None
        for name, content in self._initial.items():
            self._step.get_buffer(name).copy_(content)

    def run(self) -> Any:
        """One forward and backward pass; the loss.

        Raises:
            ExecutionError: if memory runs out, or the model does not run at all.
        """
        trained = [parameter for parameter in self._step.parameters() if parameter.requires_grad]
        try:
            with torch.inference_mode(False), torch.enable_grad(), no_autocast():
                loss = self._step(*self._tensors)
                loss.backward(inputs=trained)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise ExecutionError(
                    "memory ran out in plain PyTorch, which keeps everything and is the reference here"
                ) from error
            raise ExecutionError(
                f"{type(self._step.model).__name__} does not run in plain PyTorch, the reference here: "
                f"{first_line(error)}; make the model run by itself first"
            ) from error
        return loss.detach()

    def outcome(self, loss: torch.Tensor, to: Callable[[torch.Tensor], torch.Tensor]) -> Outcome:
        """Copies of what `run` left behind, each passed through ``to``."""
        names = self._step.names
        gradients = {names[n]: to(p.grad) for n, p in self._step.named_parameters() if p.grad is not None}
        return Outcome(to(loss), gradients, {names[n]: to(buffer) for n, buffer in self._step.named_buffers()})
