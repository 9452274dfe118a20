"""Whether a function that a loop assigned to ``forward`` calls the forward that was there, which runs the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from remat_explorer.runtime.random_state import RandomStates

GOES_AROUND = (
    "the forward that was assigned to the rematerialized model does not call the one that was there, so no plan ran. "
    "Assign it to the model before rematerialize, or let it call that forward"
)


class _Reached(BaseException):
    """The plan would run; no ``except Exception`` of the function stops it."""


class Asked:
    """Asks each function once, by a call of it that ends where the plan would run.

    A function that does not call it runs to its end, as an evaluation does; random numbers and buffers are set back.
    """

    def __init__(self) -> None:
        self._function: Callable[..., Any] | None = None
        self._answer = self._asking = False

    def goes_through(
        self, function: Callable[..., Any], model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """The answer for a function, of the model and of these inputs."""
        if self._function is not function:
            self._function, self._answer = function, self._ask(function, model, args, kwargs)
        return self._answer

    def reached(self) -> None:
        """To be called where the plan would run."""
        if self._asking:
            raise _Reached

    def _ask(
        self, function: Callable[..., Any], model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        devices = {torch.device("cpu"), *(tensor.device for tensor in model.parameters())}
        generators = [RandomStates(device) for device in devices]
        states = [generator.get() for generator in generators]
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        self._asking = True
        with torch.no_grad():
            try:
                function(*args, **kwargs)
            except _Reached:
                return True
            finally:
                self._asking = False
                for generator, state in zip(generators, states, strict=True):
                    generator.set(state)
                for buffer, before in buffers:
                    buffer.copy_(before)
        return False
