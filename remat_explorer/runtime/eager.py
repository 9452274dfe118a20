"""Plain autograd, the reference for results, time and memory."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import torch

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.explain import first_line
from remat_explorer.capture.losses import Loss
from remat_explorer.capture.memory_meter import is_out_of_memory
from remat_explorer.capture.placement import Placed
from remat_explorer.capture.step import TrainingStep
from remat_explorer.errors import ExecutionError, OutOfMemoryError
from remat_explorer.runtime.outcome import Outcome


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
        self._tangents: list[torch.Tensor] | None = None
        self.reset()

    def reset(self) -> None:
        """Buffers as at the start, no gradients."""
        for parameter in self._step.parameters():
            parameter.grad = None
        for name, content in self._initial.items():
            self._step.get_buffer(name).copy_(content)

    def run(self) -> tuple[torch.Tensor, ...]:
        """One forward and backward pass; the loss, or the outputs where there is none and backward starts from ones.

        Raises:
            OutOfMemoryError: if memory does not hold it.
            ExecutionError: if the model does not run at all.
        """
        trained = [parameter for parameter in self._step.parameters() if parameter.requires_grad]
        try:
            with torch.inference_mode(False), torch.enable_grad(), no_autocast():
                outputs = self._step(*self._tensors)
                starts = [output for output in outputs if output.requires_grad]
                if self._tangents is None:  # kept from run to run: a plan has them among what is resident
                    self._tangents = [torch.ones_like(output) for output in starts]
                torch.autograd.backward(starts, self._tangents, inputs=trained)
            return tuple(output.detach() for output in outputs)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise ExecutionError(
                    f"{type(self._step.model).__name__} does not run in plain PyTorch, the reference here: "
                    f"{first_line(error)}; make the model run by itself first"
                ) from error
            traceback.clear_frames(error.__traceback__)  # locals there hold tensors
        self.reset()
        raise OutOfMemoryError("memory ran out in plain PyTorch, which keeps everything; take a smaller batch")

    def outcome(self, outputs: tuple[torch.Tensor, ...], to: Callable[[torch.Tensor], torch.Tensor]) -> Outcome:
        """Copies of what `run` left behind, each passed through ``to``."""
        names = self._step.names
        gradients = {names[n]: to(p.grad) for n, p in self._step.named_parameters() if p.grad is not None}
        return Outcome(
            tuple(map(to, outputs)), gradients, {names[n]: to(buffer) for n, buffer in self._step.named_buffers()}
        )
