"""Automatic mixed precision: on in the forward pass where the person had it on, off everywhere else.

PyTorch's documentation asks for the same: only the forward pass and the loss belong inside `torch.autocast`, since
each backward operation takes the type of its forward operation.

Autocast casts a weight that is used twice only once, and its two gradients are added in low precision. In a trace its
cache keeps nothing, for there no parameter is a leaf of autograd. `cast_cache_in_trace` keeps casts instead, or
gradients would have other last digits than plain PyTorch's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._C import DispatchKey
from torch.overrides import TorchFunctionMode

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


_TO = torch.ops.aten.to.dtype
_KEYS = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


class CastCache(TorchFunctionMode):
    """While entered, a cast that autocast itself makes of a parameter is made once, and then given again.

    The kernels that autocast calls run with autocast switched off. So a cast is its own if autocast is off where it
    is made, and was on where Python called into torch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._parameters: dict[int, torch.Tensor] = {}
        self._casts: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._on: dict[str, bool] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._on = {device: torch.is_autocast_enabled(device) for device in DEVICES}
        return func(*args, **(kwargs or {}))

    def watch(self, model: nn.Module) -> None:
        """Keep casts of the parameters that ``model`` has now."""
        self._parameters = {id(parameter): parameter for parameter in model.parameters() if parameter.requires_grad}

    def clear(self) -> None:
        """Forget every cast, as autocast does when it is left."""
        self._casts.clear()

    def to(self, tensor: torch.Tensor, dtype: torch.dtype, *args: Any, **kwargs: Any) -> torch.Tensor:
        """What ``tensor.to(dtype)`` gives in a trace."""
        key = id(tensor), dtype
        if not self._is_kept(tensor, dtype):
            return _TO._op_dk(DispatchKey.CompositeImplicitAutograd, tensor, dtype, *args, **kwargs)
        if key not in self._casts:
            self._casts[key] = _TO._op_dk(DispatchKey.CompositeImplicitAutograd, tensor, dtype, *args, **kwargs)
        return self._casts[key]

    def _is_kept(self, tensor: torch.Tensor, dtype: torch.dtype) -> bool:
        if not isinstance(tensor, torch.Tensor):  # some kernels call this operator with a number
            return False
        device = tensor.device.type
        return (
            torch.is_autocast_cache_enabled()
            and self._on.get(device, False)
            and not torch.is_autocast_enabled(device)
            and tensor.dtype is torch.float32
            and dtype is torch.get_autocast_dtype(device)
            and self._parameters.get(id(tensor)) is tensor
        )


_this_thread = threading.local()  # another one may run plain PyTorch meanwhile


@contextlib.contextmanager
def cast_cache_in_trace() -> Iterator[None]:
    """Let a trace keep the casts that autocast would keep, in what runs `use_cast_cache`."""
    kept, before, clear = CastCache(), dict(_TO.py_kernels), torch.clear_autocast_cache

    def clear_both() -> None:
        kept.clear()
        clear()

    _TO.py_kernels.update(dict.fromkeys(_KEYS, kept.to))
    _TO._dispatch_cache.clear()
    torch.clear_autocast_cache = clear_both
    _this_thread.tracing = kept
    try:
        yield
    finally:
        _this_thread.tracing = None
        torch.clear_autocast_cache = clear
        _TO.py_kernels.clear()
        _TO.py_kernels.update(before)
        _TO._dispatch_cache.clear()


@contextlib.contextmanager
def use_cast_cache(model: nn.Module | None = None) -> Iterator[None]:
    """What a model runs in: in a trace casts of the parameters that it has now are kept, elsewhere autocast does it.

    Without a model, the parameters are those of before.
    """
    kept: CastCache | None = getattr(_this_thread, "tracing", None)
    if kept is not None and model is not None:
        kept.watch(model)
    with kept or contextlib.nullcontext():
        yield
