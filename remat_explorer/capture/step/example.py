"""The step that a graph was captured from, so that what is made of the graph can be tried on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from remat_explorer.capture.step.autocast import Autocast
from remat_explorer.capture.step.borrowed import left_as_it_was
from remat_explorer.capture.step.losses import Loss


@dataclass(frozen=True, eq=False)
class Example:
    """A model with its inputs and loss, and how it was set when its graph was captured.

    A graph keeps it as long as it lives, where each call of PyTorch is an operation. It is neither copied nor pickled.
    """

    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Loss | None
    autocast: Autocast
    training: tuple[bool, ...]
    trained: tuple[bool, ...]

    @staticmethod
    def of(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Loss | None) -> Example:
        """The example of a capture that is done now."""
        return Example(
            model,
            tuple(args),
            dict(kwargs or {}),
            loss,
            Autocast.ambient(),
            tuple(module.training for module in model.modules()),
            tuple(parameter.requires_grad for parameter in model.parameters()),
        )

    @contextlib.contextmanager
    def as_captured(self) -> Iterator[None]:
        """Meanwhile training mode, frozen parameters and autocast are as they were; the model is left as it is."""
        parameters = list(self.model.parameters())
        before = [parameter.requires_grad for parameter in parameters]
        with left_as_it_was(self.model), self.autocast.on():
            for module, training in zip(self.model.modules(), self.training, strict=False):
                module.training = training
            for parameter, trained in zip(parameters, self.trained, strict=False):
                parameter.requires_grad_(trained)
            try:
                yield
            finally:
                for parameter, trained in zip(parameters, before, strict=True):
                    parameter.requires_grad_(trained)

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()
