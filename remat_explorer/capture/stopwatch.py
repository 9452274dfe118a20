"""Seconds of a run on a device that may still be computing when a call returns."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def synchronize(device: torch.device) -> None:
    """Wait until the device has done what it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """Wall time of a run; the device is waited for before and after it.

    >>> seconds_of(lambda: torch.ones(8).sum(), torch.device("cpu")) > 0
    True
    """
    synchronize(device)
    begin = time.perf_counter()
    run()
    synchronize(device)
    return time.perf_counter() - begin
