"""Random numbers that a model draws from Python or NumPy, or by a seed that it sets: a plan would draw others."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn

from remat_explorer.errors import CaptureError

NOBODYS = 0x5EED_0F_7E57_1096  # a seed that nobody sets


class DrawsOfPython:
    """While entered, notices who draws from the generators of `random` and `numpy.random`, and who sets torch's seed.

    The generators of Python and NumPy are left as they were; that of torch is the caller's to restore.
    """

    def __enter__(self) -> DrawsOfPython:
        self._before = self._last = _states()
        self._drawn: tuple[str, str] | None = None
        torch.default_generator.manual_seed(NOBODYS)
        self._seeded = ""
        return self

    def __exit__(self, *_: object) -> None:
        random.setstate(self._before[0])
        np.random.set_state(self._before[1])

    def look(self, module: str) -> None:
        """Compare with the last look; ``module`` is what ran since then, as people name it."""
        now = _states()
        if self._drawn is None:
            if now[0] != self._last[0]:
                self._drawn = "random", module
            elif not _equal(now[1], self._last[1]):
                self._drawn = "numpy.random", module
        self._last = now

    def look_at_seed(self, place: str) -> None:
        """Look at torch's seed before each call, made at ``place``: it may be set, and set back."""
        if torch.initial_seed() != NOBODYS:
            self._seeded = self._seeded or place or "somewhere"

    def refuse(self, model: nn.Module, cause: BaseException | None = None) -> None:
        """Raise an error if anything was drawn, or a seed was set.

        Raises:
            CaptureError: with the generator and the first module that drew from it, or with the place.
        """
        self.look("")
        self.look_at_seed("at its end")
        if self._seeded:
            raise CaptureError(
                f"{type(model).__name__} cannot be captured as a static training graph: {self._seeded}, forward sets "
                "the seed of torch's generator, and a plan draws from the generator as a step finds it. Set the seed "
                "before the step"
            ) from cause
        if self._drawn is None:
            return
        generator, module = self._drawn
        place = f"in {module}, " if module else ""
        raise CaptureError(
            f"{type(model).__name__} cannot be captured as a static training graph: {place}forward "
            f"draws from Python's {generator}, and a plan would repeat in every step what was drawn during the "
            "capture. Draw with torch.rand, and use torch.where instead of `if`; or switch off what is done at random "
            "(layers that are dropped, masks of SpecAugment)"
        ) from cause


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state(legacy=True)


def _equal(first: Any, second: Any) -> bool:
    return first[2] == second[2] and np.array_equal(first[1], second[1])
