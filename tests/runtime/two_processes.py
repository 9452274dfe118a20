"""Two processes of a test, which end or are ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.multiprocessing.spawn import spawn

SECONDS = 600


def run_two(work: Callable[[int, str], None], folder: Path) -> None:
    """Run ``work(rank, folder)`` in two processes, and fail where one of them fails or does not end."""
    context = spawn(work, (str(folder),), nprocs=2, join=False)
    assert context is not None
    deadline = time.monotonic() + SECONDS
    while not context.join(timeout=5):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.terminate()  # type: ignore[union-attr]
            pytest.fail("the processes did not end")
