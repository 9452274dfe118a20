"""The random number generator of a device, so that a repeated dropout draws the mask that it drew first."""

from __future__ import annotations

import numpy as np
import torch


def generator_state(device: torch.device) -> np.ndarray:
    """The state of a device's generator, uint8.

    It is kept outside of torch's allocator: the CPU generator's 5 kB would count as memory of the plan.
    """
    state = torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
    return state.numpy().copy()


def set_generator_state(state: np.ndarray, device: torch.device) -> None:
    """Put the generator of a device into a state that `generator_state` gave.

    >>> cpu = torch.device("cpu")
    >>> before = generator_state(cpu)
    >>> first = torch.rand(3)
    >>> set_generator_state(before, cpu)
    >>> bool((torch.rand(3) == first).all())
    True
    """
    if device.type == "cuda":
        torch.cuda.set_rng_state(torch.from_numpy(state), device)
    else:
        torch.set_rng_state(torch.from_numpy(state))


class RandomStates:
    """Saved generator states, one for each random operation."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._saved: dict[int, np.ndarray] = {}

    def get(self) -> np.ndarray:
        """The generator's state now."""
        return generator_state(self._device)

    def set(self, state: np.ndarray) -> None:
        """Put the generator into a state."""
        set_generator_state(state, self._device)

    def save(self, operation: int) -> None:
        """Remember the state in which an operation runs for the first time."""
        self._saved[operation] = self.get()

    def restore(self, operation: int) -> None:
        """Go back to the state that `save` remembered."""
        self.set(self._saved[operation])
