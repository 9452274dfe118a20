"""A training step under plain autograd, whose model may run in another way than it is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.borrowed import borrowed
from remat_explorer.capture.kernels import recurrence_in_steps
from remat_explorer.capture.losses import Loss
from remat_explorer.capture.placement import Placed
from remat_explorer.capture.step import TrainingStep, unwrapped
from remat_explorer.runtime.interpreter import Outcome, Section

Change = Callable[[], contextlib.AbstractContextManager[Any]]


class Training:
    """A model and its loss that plain autograd can train; the person's own tensors stay as they are.

    As `remat_explorer.runtime.eager.Eager`, with one difference: the model keeps the lent tensors until the backward
    pass is over, since checkpoints run parts of the model again in it.

    Attributes:
        tensors: the plain inputs, as `TrainingStep.tensors` gives them.
    """

    def __init__(self, placed: Placed, loss: Loss | None) -> None:
        self._step = TrainingStep(placed.model, placed.args, placed.kwargs, loss)
        self.tensors = self._step.tensors(placed.args, placed.kwargs)
        own = self._held()
        self._initial = {name: buffer.clone() for name, buffer in self._step.named_buffers()}
        self._step.hold(lambda tensor: tensor.detach() if isinstance(tensor, nn.Parameter) else tensor.clone())
        self._lent = {id(own[name]): tensor for name, tensor in self._held().items()}
        self.reset()

    def reset(self) -> None:
        """Buffers as at the start, no gradients."""
        for parameter in self._step.parameters():
            parameter.grad = None
        for name, content in self._initial.items():
            self._step.get_buffer(name).copy_(content)

    def run(self, change: Change, section: Section = contextlib.nullcontext) -> Outcome:
        """One forward and backward pass.

        Args:
            change: a context entered on the model before it runs, and left when gradients are there.
            section: a context around all of it, for meters.

        Returns:
            The tensors themselves; `reset` writes to the buffers.
        """
        trained = [parameter for parameter in self._step.parameters() if parameter.requires_grad]
        model = unwrapped(self._step.model)
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            no_autocast(),
            torch.compiler.set_stance("force_eager"),
            section(),
            borrowed(self._step.model, self._lent),
            recurrence_in_steps(model),
            change(),
        ):
            loss = self._step.loss_of(model, self.tensors)
            loss.backward(inputs=trained)
        names = self._step.names
        gradients = {names[name]: p.grad for name, p in self._step.named_parameters() if p.grad is not None}
        return Outcome(loss.detach(), gradients, {names[name]: b for name, b in self._step.named_buffers()})

    def _held(self) -> dict[str, torch.Tensor]:
        return {**dict(self._step.named_parameters()), **dict(self._step.named_buffers())}
