"""Two processes of a test, which end or are ended."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.multiprocessing.spawn import start_processes

SECONDS = 600
LOADED = [
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "remat_explorer.runtime",
]  # once, for all that are forked


def run_two(work: Callable[[int, str], None], folder: Path) -> None:
    """Run ``work(rank, folder)`` in two processes, and fail where one of them fails or does not end."""
    multiprocessing.set_forkserver_preload(LOADED)
    context = start_processes(work, (str(folder),), nprocs=2, join=False, start_method="forkserver")
    assert context is not None
    deadline = time.monotonic() + SECONDS
    while not context.join(timeout=5):
        if time.monotonic() > deadline:
            for process in context.processes:
                process.terminate()  # type: ignore[union-attr]
            pytest.fail("the processes did not end")
