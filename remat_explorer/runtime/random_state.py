"""The random number generator of a device, so that a repeated dropout draws the mask that it drew first."""

from __future__ import annotations

import numpy as np
import torch


class RandomStates:
    """Saved generator states, one for each random operation.

    States are kept outside of torch's allocator: the CPU generator's 5 kB would count as memory of the plan.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._saved: dict[int, np.ndarray] = {}

    def get(self) -> np.ndarray:
        """The generator's state now."""
        state = torch.cuda.get_rng_state(self._device) if self._device.type == "cuda" else torch.get_rng_state()
        return state.numpy().copy()

    def set(self, state: np.ndarray) -> None:
        """Put the generator into a state."""
        tensor = torch.from_numpy(state)
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(tensor, self._device)
        else:
            torch.set_rng_state(tensor)

    def save(self, operation: int) -> None:
        """Remember the state in which an operation runs for the first time."""
        self._saved[operation] = self.get()

    def restore(self, operation: int) -> None:
        """Go back to the state that `save` remembered."""
        self.set(self._saved[operation])
