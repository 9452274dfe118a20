"""The sources of generated code: torch.fx keeps each of them for ever, here they go with the module whose code it is.

Each `GraphModule` and each `recompile()` leaves a source in ``torch.fx.graph_module._loader`` and in `linecache`, for
tracebacks. A capture makes several, of which one is kept, and a process that measures a thousand plans makes thousands.

A module can be collected at any moment, also while `linecache.checkcache` goes through the names that it has: it raises
KeyError for one that is gone. So the lines go with the module, and the name goes when the next source comes.
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
_EMPTY: list[str] = []  # names whose modules are gone: `linecache` still has them, with no lines


def _kept() -> dict[str, Any]:
    """What torch.fx keeps, by the names that stand in tracebacks; nothing where it keeps it elsewhere."""
    return getattr(getattr(graph_module, "_loader", None), "eval_cache", {})


def _drop(name: str) -> None:
    _OWNED.discard(name)
    _kept().pop(name, None)
    linecache.cache.pop(name, None)


def _empty(name: str) -> None:
    """Called by the garbage collector."""
    _OWNED.discard(name)
    _kept().pop(name, None)
    if name in linecache.cache:
        linecache.cache[name] = (0, None, [], name)  # as of a file that a loader has read
        _EMPTY.append(name)


def _drop_empty() -> None:
    while _EMPTY:
        _drop(_EMPTY.pop())


def with_its_source(module: GraphModule) -> GraphModule:
    """The same module, whose source is dropped with it.

    >>> import gc
    >>> module = with_its_source(GraphModule({}, __import__("torch").fx.Graph()))
    >>> name = module.forward.__code__.co_filename
    >>> any(line.startswith("def forward") for line in linecache.getlines(name))
    True
    >>> del module
    >>> _ = gc.collect()
    >>> linecache.getlines(name)
    []
    """
    _drop_empty()
    name = type(module).forward.__code__.co_filename
    if name in _kept() and name not in _OWNED:
        _OWNED.add(name)
        weakref.finalize(module, _empty, name).atexit = False
    return module


@contextlib.contextmanager
def sources_dropped() -> Iterator[None]:
    """Drop all sources that are made meanwhile, but those of `with_its_source`.

    Those that another thread makes meanwhile go, too: its tracebacks then show no lines of generated code.
    """
    _drop_empty()
    before = set(_kept())
    try:
        yield
    finally:
        for name in set(_kept()) - before - _OWNED:
            _drop(name)
