"""Plain PyTorch and generated code that can be stopped between two operations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from remat_explorer.errors import ExecutionError

PATIENCE = 0.25  # seconds that a run may take without being asked whether to stop


class _Asking(TorchDispatchMode):
    """Asks before every operation, of the backward pass, too."""

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        super().__init__()
        self._cancelled = cancelled

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._cancelled():
            raise ExecutionError(f"execution was cancelled before {func}")
        return func(*args, **(kwargs or {}))


class Interruption:
    """Runs contenders so that cancelling takes effect soon, without slowing down those that are short anyway.

    Asking costs microseconds an operation, which would show in the time of a run of short operations, and holds what an
    operation takes for itself a moment longer, which would show in its memory. A run that is timed or metered and took
    less than `PATIENCE` the last time, or is expected to, is therefore left alone.

    >>> import torch
    >>> interruption = Interruption(lambda: True)
    >>> interruption.run("eager", lambda: torch.ones(1))
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ExecutionError: execution was cancelled before aten.ones.default
    """

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        self._cancelled = cancelled
        self._seconds: dict[str, float] = {}

    def expect(self, name: str, seconds: float) -> None:
        """Say how long the next run of a contender takes."""
        self._seconds[name] = seconds

    def run(self, name: str, contender: Callable[[], Any], timed: bool = False) -> Any:
        """What ``contender`` gives; ``timed`` if it is timed or metered.

        Raises:
            ExecutionError: if it was cancelled.
        """
        short = timed and self._seconds.get(name, PATIENCE) < PATIENCE
        begin = time.perf_counter()
        with contextlib.nullcontext() if short else _Asking(self._cancelled):
            result = contender()
        self._seconds[name] = time.perf_counter() - begin
        return result
