"""What Execute runs: a module with its example inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Inputs:
    """What to execute: a module, its example inputs, and the loss of its output."""

    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] | None = None
    loss: Any = None

    @property
    def given(self) -> tuple[Any, tuple[Any, ...], dict[str, Any] | None, Any]:
        """Module, args, kwargs and loss, as `capture`, `profile` and `measure` take them."""
        return self.module, self.args, self.kwargs, self.loss

    def on(self, device: str) -> Inputs:
        """The same on a device, where they are captured, measured and executed; as they are if they lie there.

        Raises:
            ExecutionError: as `remat_explorer.capture.model_placement.place`; tensors without content stay as they are.
        """
        from remat_explorer.capture.model_placement import model_device, place, torch_device

        home = model_device(self.module, self.args, self.kwargs)
        if home.type == "meta" or home == torch_device(device):
            return self
        placed = place(self.module, self.args, self.kwargs, device)
        return Inputs(placed.model, placed.args, placed.kwargs, self.loss)
