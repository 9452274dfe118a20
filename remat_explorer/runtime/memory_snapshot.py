"""PyTorch's own record of every CUDA allocation, for its viewer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from remat_explorer.errors import ExecutionError
from remat_explorer.files import replacing

ENTRIES = 200_000  # allocations and frees that are kept


def require_cuda(device: torch.device) -> None:
    """Refuse other devices, of which PyTorch keeps no such record.

    Raises:
        ExecutionError: that says so.
    """
    if device.type != "cuda":
        raise ExecutionError(f"PyTorch records memory snapshots on CUDA only, not on {device}; leave the snapshot out")


@contextlib.contextmanager
def recorded(device: torch.device, path: str | Path) -> Iterator[None]:
    """Record the allocations of the body and write them to ``path``, which pytorch.org/memory_viz opens.

    The file is complete or not there: it is written under another name first. A recording of the person's goes on, and
    is what is written.

    Raises:
        ExecutionError: as `require_cuda`.
    """
    require_cuda(device)
    ours = not torch._C._cuda_isHistoryEnabled()  # type: ignore[attr-defined]
    with replacing(path) as temporary:
        if ours:
            torch.cuda.memory._record_memory_history(max_entries=ENTRIES)
        try:
            yield
            torch.cuda.memory._dump_snapshot(str(temporary))
        finally:
            if ours:
                torch.cuda.memory._record_memory_history(enabled=None)
