"""The sources of generated code: torch.fx keeps each of them for ever, here they go with the module whose code it is.

Each `GraphModule` and each `recompile()` leaves a source in ``torch.fx.graph_module._loader`` and in `linecache`, for
tracebacks. A capture makes several, of which one is kept, and a process that measures a thousand plans makes thousands.

A module can be collected at any moment, also while `linecache.checkcache` goes through the names that it has: it raises
KeyError for one that is gone. So the source of a module that is gone goes when the next one comes.
"""

from __future__ import annotations

import contextlib
import linecache
import weakref
from collections.abc import Iterator
from typing import Any

import torch.fx.graph_module as graph_module
from torch.fx import GraphModule

_OWNED: set[str] = set()  # names of the sources that go with their modules
_LEFT: list[str] = []  # those whose modules are gone


def _kept() -> dict[str, Any]:
    """What torch.fx keeps, by the names that stand in tracebacks; nothing where it keeps it elsewhere."""
    return getattr(getattr(graph_module, "_loader", None), "eval_cache", {})


def _drop(name: str) -> None:
    _OWNED.discard(name)
    _kept().pop(name, None)
    linecache.cache.pop(name, None)


def _drop_left() -> None:
    with contextlib.suppress(IndexError):  # no more; another thread may have taken the last one
        while True:
            _drop(_LEFT.pop())


def drop_source_with(module: GraphModule) -> GraphModule:
    """The same module, whose source is dropped once it is gone.

    >>> import gc
    >>> from torch.fx import Graph
    >>> module = drop_source_with(GraphModule({}, Graph()))
    >>> name = module.forward.__code__.co_filename
    >>> any(line.startswith("def forward") for line in linecache.getlines(name))
    True
    >>> del module
    >>> _ = gc.collect()
    >>> module = drop_source_with(GraphModule({}, Graph()))
    >>> linecache.getlines(name)
    []
    """
    _drop_left()
    name = type(module).forward.__code__.co_filename
    if name in _kept() and name not in _OWNED:
        _OWNED.add(name)
        weakref.finalize(module, _LEFT.append, name).atexit = False
    return module


@contextlib.contextmanager
def drop_new_sources() -> Iterator[None]:
    """Drop all sources that are made meanwhile, but those of `drop_source_with`.

    Those that another thread makes meanwhile go, too: its tracebacks then show no lines of generated code.
    """
    _drop_left()
    before = set(_kept())
    try:
        yield
    finally:
        for name in set(_kept()) - before - _OWNED:
            _drop(name)
