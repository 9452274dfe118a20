"""Which attributes of which modules a trace reads: what a static graph of the model depends on."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

REGISTRIES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OWN = "remat_explorer.capture."
_NOT_A_PERSONS = tuple(str(Path(place).parent) + os.sep for place in (torch.__file__, Path(__file__).parents[1]))


class Reads:
    """Records the attributes that are read, by name, also those that are not there.

    An attribute that forward writes before it reads it is no input of forward, and is left out. A read of the whole
    ``__dict__``, or of a registry such as ``_modules``, is recorded under that name.

    Args:
        model: whose modules have paths. Other modules are recorded while `calling`: such as a loss, or what is kept in
            a plain list.

    Attributes:
        names: for each module, by its identity, a weak reference to it and the names.

    >>> layer = nn.Dropout(0.1)
    >>> reads = Reads(layer)
    >>> with reads.recording(), reads.calling():
    ...     y = layer(torch.ones(2))
    >>> {"p", "training", "forward"} <= set(reads.names[id(layer)][1])
    True
    """

    def __init__(self, model: nn.Module) -> None:
        self._inside = {id(module): path for path, module in model.named_modules()}
        self._written: set[tuple[int, str]] = set()
        self._calling = False
        self._assigning = 0
        self.names: dict[int, tuple[weakref.ref[nn.Module], dict[str, None]]] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what every module is asked for, and what is assigned to it."""
        before = {name: vars(nn.Module).get(name) for name in ("__getattribute__", "__setattr__")}
        assign: Any = nn.Module.__setattr__

        def get(module: nn.Module, name: str) -> Any:
            self._read(module, name)
            return object.__getattribute__(module, name)

        def put(module: nn.Module, name: str, value: Any) -> None:
            if self._calling:
                self._written.add((id(module), name))
            self._assigning += 1
            try:
                assign(module, name, value)
            finally:
                self._assigning -= 1

        nn.Module.__getattribute__, nn.Module.__setattr__ = get, put  # type: ignore[method-assign]
        try:
            yield
        finally:
            for name, method in before.items():
                if method is None:
                    delattr(nn.Module, name)
                else:
                    setattr(nn.Module, name, method)

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Around a call of the model: what happens inside is the person's code."""
        self._written.clear()
        self._calling = True
        try:
            yield
        finally:
            self._calling = False

    def entries(self) -> Iterator[tuple[str | None, nn.Module | None, dict[str, None]]]:
        """For each module that was read its path, or None, itself, unless it is gone, and the names of attributes."""
        for key, (reference, names) in self.names.items():
            yield self._inside.get(key), reference(), names

    def _read(self, module: nn.Module, name: str) -> None:
        known = self.names.get(id(module))
        if known is not None and name in known[1] and known[0]() is module:
            return
        if self._assigning or not (self._calling or (id(module) in self._inside and name not in REGISTRIES)):
            return
        kind = type(module)
        if id(module) not in self._inside and (kind is nn.Module or kind.__module__.startswith(_OWN)):
            return  # where a tracer keeps its constants, or what goes around the model
        if name == "__dict__" and sys._getframe(2).f_code.co_filename.startswith(_NOT_A_PERSONS):
            return
        if (name.startswith("__") and name != "__dict__") or (id(module), name) in self._written:
            return
        if id(module) not in self.names or self.names[id(module)][0]() is not module:
            self.names[id(module)] = (weakref.ref(module), {})
        names = self.names[id(module)][1]
        if name == "forward":
            names.update(dict.fromkeys(HOOKS))
        names[name] = None
