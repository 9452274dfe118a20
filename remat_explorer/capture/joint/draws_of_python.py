"""Random numbers that a model draws from Python or NumPy: a plan would have those of the capture in every step."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from torch import nn

from remat_explorer.errors import CaptureError


class DrawsOfPython:
    """While entered, notices which module draws from the generators of `random` and `numpy.random`.

    Both are left as they were.
    """

    def __enter__(self) -> DrawsOfPython:
        self._before = self._last = _states()
        self._drawn: tuple[str, str] | None = None
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

    def refuse(self, model: nn.Module, cause: BaseException | None = None) -> None:
        """Raise an error if anything was drawn.

        Raises:
            CaptureError: with the generator and the first module that drew from it.
        """
        self.look("")
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
