"""Random numbers that a model draws from Python or NumPy, or by a seed that it sets: a plan would draw others."""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from remat_explorer.capture.joint.source_lines import file_name, place_of
from remat_explorer.errors import CaptureError

SEEDING = [
    (place, name)
    for place in (torch, torch.random, torch.cuda, torch.cuda.random)
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state")
    if hasattr(place, name)
]


class UnplannedDraws:
    """While entered, notices who draws from the generators of `random` and `numpy.random`, and who sets torch's seed.

    The generators of Python and NumPy are left as they were.
    """

    def __enter__(self) -> UnplannedDraws:
        self._before = self._last = _states()
        self._drawn: tuple[str, str] | None = None
        self._seeded, self._thread = "", threading.get_ident()
        with ExitStack() as stack:
            for place, name in SEEDING:
                stack.enter_context(mock.patch.object(place, name, self._noticed(getattr(place, name))))
            self._patches = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()
        random.setstate(self._before[0])
        np.random.set_state(self._before[1])

    def _noticed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What sets a seed, and notes where forward calls it; torch's own calls, as a checkpoint's, restore a state."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            own = threading.get_ident() == self._thread and file_name(caller.f_code.co_filename)
            if own and (place := place_of(caller)):
                self._seeded = self._seeded or f"at {file_name(place[0])}:{place[1]}"
            return original(*args, **kwargs)

        return call

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
        """Raise an error if anything was drawn, or a seed was set.

        Raises:
            CaptureError: with the generator and the first module that drew from it, or with the place.
        """
        self.look("")
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
