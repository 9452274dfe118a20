"""The state from which every run of a comparison starts: buffers, gradients, random numbers."""

from __future__ import annotations

import numpy as np
import torch

from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.random_state import RandomStates


class StartingPoint:
    """Remembers the random state of the CPU and of a device, and whose buffers and gradients to set back.

    Args:
        eager: plain PyTorch on copies of the buffers.
        device: where the runs are.
    """

    def __init__(self, eager: Eager, device: torch.device) -> None:
        self._eager, self.device = eager, device
        self._generators = [RandomStates(home) for home in dict.fromkeys((torch.device("cpu"), device))]
        self._start = self.states()

    def states(self) -> list[np.ndarray]:
        """Random states now, of the CPU and of the device."""
        return [generator.get() for generator in self._generators]

    def rewind(self) -> None:
        """Go back to the beginning."""
        self._eager.reset()
        for generator, state in zip(self._generators, self._start, strict=True):
            generator.set(state)
