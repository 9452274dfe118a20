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
    """The device types for which autocast is on, each with its low-precision type, and whether it keeps cast weights.

    Where a weight is used twice, a kept cast adds its two gradients in low precision; without it they are added in
    full precision, with other last digits.
    """

    types: tuple[tuple[str, torch.dtype], ...]
    keeps_casts: bool = True

    @classmethod
    def ambient(cls) -> Autocast:
        """What surrounds the caller.

        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     Autocast.ambient()
        Autocast(types=(('cpu', torch.bfloat16),), keeps_casts=True)
        """
        types = tuple((d, torch.get_autocast_dtype(d)) for d in DEVICES if torch.is_autocast_enabled(d))
        return cls(types, torch.is_autocast_cache_enabled())

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Autocast as recorded, for one forward pass: casts that are kept go when it ends, as they do in plain PyTorch.

        Tracing switches the keeping of casts off; here it is as the person has it.
        """
        before = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(self.keeps_casts)
        torch.clear_autocast_cache()
        try:
            with contextlib.ExitStack() as stack:
                for device, dtype in self.types:
                    stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=self.keeps_casts))
                yield
        finally:
            torch.clear_autocast_cache()
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
