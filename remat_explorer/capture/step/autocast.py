"""Automatic mixed precision: on in the forward pass where the person had it on, off everywhere else.

PyTorch's documentation asks for the same: only the forward pass and the loss belong inside `torch.autocast`, since
each backward operation takes the type of its forward operation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Autocast:
    """The device types for which autocast is on, each with its low-precision type."""

    types: tuple[tuple[str, torch.dtype], ...]

    @classmethod
    def ambient(cls) -> Autocast:
        """What surrounds the caller.

        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     Autocast.ambient()
        Autocast(types=(('cpu', torch.bfloat16),))
        """
        return cls(tuple((d, torch.get_autocast_dtype(d)) for d in DEVICES if torch.is_autocast_enabled(d)))

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Autocast as recorded, without its cache of cast weights; nested uses of autocast go without it, too.

        Tracing cannot use the cache. Where a weight is used twice, the cache adds its gradients in low precision and
        their sum differs in its last digits; plain PyTorch must go without it to be a reference.
        """
        before = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        try:
            with contextlib.ExitStack() as stack:
                for device, dtype in self.types:
                    stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=False))
                yield
        finally:
            torch.set_autocast_cache_enabled(before)


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Autocast off: traced operations have their casts already, and would be cast twice.

    >>> with torch.autocast("cpu"), no_autocast():
    ...     torch.is_autocast_enabled("cpu")
    False
    """
    with contextlib.ExitStack() as stack:
        for device in DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
