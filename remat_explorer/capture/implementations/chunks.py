"""A tensor as one row of entries in the order of its storage, walked in chunks so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from remat_explorer.errors import ExecutionError

CHUNK = 1 << 16  # entries; a multiple of 8, so that each chunk of a mask starts at a byte of its own


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """A view of the entries in the order in which they lie in memory, whatever the memory format.

    An ExecutionError if entries share memory or there are gaps between them.
    """
    if not is_dense(tensor):
        raise ExecutionError(
            f"a tensor of shape {list(tensor.shape)} with strides {list(tensor.stride())} has gaps or overlaps in "
            "memory; this implementation needs a dense one, such as tensor.contiguous()"
        )
    return torch.as_strided(tensor, (tensor.numel(),), (1,), tensor.storage_offset())


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the entries fill one piece of memory, each of them once."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 0:
            return True
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def chunks(length: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices that cover a row of ``length`` entries."""
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))


def samples(tensor: torch.Tensor) -> Iterator[slice]:
    """Slices along the first dimension, of about `CHUNK` entries each but at least one sample."""
    return chunks(len(tensor), max(1, CHUNK // max(1, tensor[:1].numel())))
