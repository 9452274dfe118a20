"""The random number generator of a device, so that a repeated dropout draws the mask that it drew first.

CUDA's generator is Philox (Salmon et al., SC 2011): a seed, and an offset that each kernel moves on by as much as it
draws. Both are numbers of the host, which are read and set without waiting for the device. While a CUDA graph is
captured, they are the graph's, and PyTorch refuses both.
"""

from __future__ import annotations

import numpy as np
import torch


def generator_state(device: torch.device) -> np.ndarray:
    """The state of a device's generator: seed and offset on CUDA, uint64 of shape (2,), else uint8.

    It is kept outside of torch's allocator: the CPU generator's 5 kB would count as memory of the plan.
    """
    if device.type == "cuda":
        generator = _philox(device)
        return np.array([generator.initial_seed(), generator.get_offset()], dtype=np.uint64)
    return torch.get_rng_state().numpy().copy()


def set_generator_state(state: np.ndarray, device: torch.device) -> None:
    """Put the generator of a device into a state that `generator_state` gave."""
    if device.type == "cuda":
        generator, (seed, offset) = _philox(device), state.tolist()
        if generator.initial_seed() != seed:
            generator.manual_seed(seed)
        generator.set_offset(offset)
    else:
        torch.set_rng_state(torch.from_numpy(state))


def _philox(device: torch.device) -> torch.Generator:
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]


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
