"""What attributes, variables and inputs hold at one time, in a form that can be compared later.

`SnapshotTaker.of` takes the `Snapshot` of a value: by content where there is one, else by identity. Its `Guards` tell
in microseconds, by identities and versions of tensors, whether nothing has changed; contents are compared only if not.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import contextvars
import ctypes
import dataclasses
import enum
import functools
import gc
import io
import itertools
import logging
import operator
import queue
import random
import re
import sys
import threading
import types
import warnings
import weakref
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

MISSING = object()
PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None), type(...), slice, range, enum.Enum, np.generic),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    *(Decimal, Fraction, date, timedelta, PurePath, re.Pattern),
)
_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
LONG = 10_000  # entries from which on a container, and bytes from which on an array, is compared by identity
_NESTED = 3  # functions within functions that are compared
_DEEP = 2  # objects of a person's own classes within one another
_NOTES = ("architectures", "dtype")  # what save_pretrained of transformers writes into a model's configuration
_CONFIGS = (types.SimpleNamespace, argparse.Namespace)
_KEEPERS = (threading.local, UserDict, UserList, ChainMap)  # of Python, looked into in full
_MEMORY = (bytearray, array.array, ctypes.c_int.__mro__[2])  # the last is the base of everything of ctypes
_WEAK = (weakref.WeakSet, weakref.WeakValueDictionary, weakref.WeakKeyDictionary)
_READ = (*_MEMORY, threading.Event)
_FOREIGN = (sys.stdlib_module_names - {"__main__"}) | {"torch", "numpy"}


class Identity:
    """An object that equals itself alone.

    >>> Identity(print) == Identity(print), Identity([]) == Identity([])
    (True, False)
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value


class FunctionSnapshot:
    """A function; it equals another that the same text made from the same things, such as a lambda made again."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, function: types.FunctionType) -> None:
        self.value = function

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctionSnapshot):
            return False
        return self.value is other.value or _are_made_alike(self.value, other.value, _NESTED)


class TensorSnapshot:
    """A tensor as it is now; it equals another with the same numbers, as long as nobody has written to either."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.version = tensor, version_of(tensor)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorSnapshot):
            return False
        mine, theirs = self.tensor, other.tensor
        if mine is theirs:
            return self.version == other.version
        versions = version_of(mine), version_of(theirs)
        if type(mine) is not type(theirs) or (self.version, other.version) != versions:
            return False
        layouts = ((t.dtype, t.device, t.shape, t.stride(), t.requires_grad) for t in (mine, theirs))
        return next(layouts) == next(layouts) and _equal(mine, theirs)


@dataclass(frozen=True, slots=True, eq=True)
class Snapshot:
    """What an attribute held at one time.

    Attributes:
        kind: "plain", "tensor", "own" (a parameter or buffer of the model, by its name), "module" (one of the model's,
            by its path), "container", "object", "state" (of what moves on when it is used) or "other".
        value: of plain values their type and themselves; of containers and objects their type; of a state the type, the
            state as a text, and whether it can be put back; else as in ``kind``.
        items: what is in a container, by key or place, or in an object, by the name of its attribute.
    """

    kind: str
    value: Any
    items: tuple[tuple[Any, Snapshot], ...] = ()


ABSENT = Snapshot("absent", None)


class SnapshotTaker:
    """Takes the `Snapshot` of values, with `Guards` that tell quickly whether it is still the same.

    Args:
        model: whose parameters, buffers and modules are known by their names.
        names: which attributes are looked at in objects that methods are bound to; None for all.
        everywhere: in other objects, too.

    >>> SnapshotTaker(nn.ReLU()).of([1, "a"]) == SnapshotTaker(nn.ReLU()).of([1, "a"])
    True
    """

    def __init__(self, model: nn.Module, names: Set[str] | None = None, everywhere: bool = False) -> None:
        self._names, self._by_name = names, everywhere
        state = [*model.named_parameters(), *model.named_buffers()]
        self._own = {id(tensor): name for name, tensor in state}
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._seen: dict[tuple[int, bool], Snapshot] = {}
        self._cut: dict[tuple[int, bool], int] = {}  # depths of what was visited and has more than was looked into
        self._cuts = 0
        self._kept: list[Any] = []  # so that no identity is used twice
        self.guards = Guards()

    def of(self, value: Any, depth: int = 0) -> Snapshot:
        """The content of ``value``; ``depth`` is the number of objects that it is in."""
        if isinstance(value, PLAIN):
            return Snapshot("plain", (type(value), value))
        place = id(value), self._by_name
        if place not in self._seen or depth < self._cut.get(place, 0):  # nearer than before, it is looked into further
            self._kept.append(value)
            self._seen[place], cuts = Snapshot("other", Identity(value)), self._cuts  # where a container holds itself
            self._cut.pop(place, None)
            self._seen[place] = self._visit(value, depth)
            if self._cuts > cuts:
                self._cut[place] = depth
        elif place in self._cut:
            self._cuts += 1
        return self._seen[place]

    def of_attribute(self, name: str, value: Any) -> Snapshot:
        """The content of a module's attribute; of registered hooks only their order counts, not the keys."""
        if not (name.startswith("_") and name.endswith("_hooks") and isinstance(value, dict)):
            return self.of(value)
        self.guards.add_mapping(value)
        return self._with("container", value, list(enumerate(value.values())), 0)

    def _visit(self, value: Any, depth: int) -> Snapshot:
        if isinstance(value, torch.Tensor):
            if id(value) in self._own:
                return Snapshot("own", self._own[id(value)])
            self.guards.tensors.append((value, version_of(value), address_of(value)))
            return Snapshot("tensor", TensorSnapshot(value))
        if isinstance(value, nn.Module):
            path = self._paths.get(id(value))
            return Snapshot("other", Identity(value)) if path is None else Snapshot("module", (path, type(value)))
        if isinstance(value, np.ndarray) and value.nbytes <= LONG and value.dtype != object:
            self.guards.arrays.append((value, value.tobytes()))
            return Snapshot("array", (value.dtype.str, value.shape, value.tobytes()))
        if isinstance(value, types.FunctionType):
            return Snapshot("other", FunctionSnapshot(value))
        base: Any = next((base for base in _CONTAINERS if isinstance(value, base)), None)
        if base is not None and base.__len__(value) <= LONG:  # people's own classes may have another length
            return self._container(value, base, depth)
        if isinstance(value, functools.partial):
            return self._with(
                "object", value, [("func", value.func), ("args", value.args), ("kw", value.keywords)], depth
            )
        if isinstance(value, weakref.ref):
            return Snapshot("object", type(value), (("it", self.of(value(), depth)),))
        if isinstance(value, types.MappingProxyType):
            return self.of(gc.get_referents(value)[0], depth)
        if isinstance(value, contextvars.ContextVar):
            held = value.get(MISSING)
            self.guards.states.append((value, lambda variable: id(variable.get(MISSING)), id(held), None))
            return self._with("object", value, [] if held is MISSING else [("value", held)], depth)
        if isinstance(value, types.MethodType):
            return Snapshot("method", Identity(value.__func__), (("__self__", self._owner(value.__self__, depth)),))
        if _is_open(value):
            if depth < _DEEP:
                return self._object(value, depth)
            self._cuts += 1
        elif type(value).__module__ == "multiprocessing.sharedctypes":
            return self.of(cast(Any, value).get_obj(), depth)
        elif isinstance(value, _READ) or self._names is None:
            if (state := _state_of(value)) is not None:
                self.guards.states.append((value, *state))
                return Snapshot("state", (type(value), repr(state[1]), state[2] is not None))
            return self._stream(value, depth)
        return Snapshot("other", Identity(value))

    def _stream(self, value: Any, depth: int) -> Snapshot:
        """What is put in and taken out by whoever comes, so that only what one pass does to it is looked at."""
        if isinstance(value, queue.Queue):
            return self._with("object", value, [("queue", value.queue)], depth)
        inner: Any = getattr(value, "data", None) if isinstance(value, _WEAK) else None
        if isinstance(value, weakref.WeakSet):
            self.guards.sets.append((inner, frozenset(inner)))
            return Snapshot("container", (type(value), frozenset(map(id, value))))
        if isinstance(value, weakref.WeakValueDictionary | weakref.WeakKeyDictionary):
            self.guards.add_mapping(inner)
            entries = value.items() if isinstance(value, weakref.WeakValueDictionary) else enumerate(value.values())
            return self._with("object", value, [(repr(key), held) for key, held in entries], depth)
        return Snapshot("other", Identity(value))

    def _owner(self, value: Any, depth: int) -> Snapshot:
        """The content of an object that a method is bound to."""
        before, self._by_name = self._by_name, self._names is not None
        try:
            return self.of(value, depth)
        finally:
            self._by_name = before

    def _container(self, value: Any, base: Any, depth: int) -> Snapshot:
        if base is dict:
            self.guards.add_mapping(value)
            return self._with("container", value, list(dict.items(value)), depth)
        if base in (set, frozenset):
            members = frozenset(base.__iter__(value))
            self.guards.sets.append((value, members))
            return Snapshot("container", (type(value), members))
        if base is not tuple:
            self.guards.add_sequence(value)
        return self._with("container", value, list(enumerate(base.__iter__(value))), depth)

    def _object(self, value: Any, depth: int) -> Snapshot:
        attributes = getattr(value, "__dict__", {})
        looked_for = self._names if self._by_name and not isinstance(value, _KEEPERS) else None
        if looked_for is not None:
            self.guards.states.append((attributes, len, len(attributes), None))  # others may join
            attributes = {name: held for name, held in attributes.items() if name in looked_for}
            self.guards.slots += [(vars(value), name, held) for name, held in attributes.items()]
        elif hasattr(value, "__dict__"):
            self.guards.add_mapping(attributes)
        slots = [name for name in _slots_of(value) if looked_for is None or name in looked_for]
        in_slots = {name: _in_slot(value, name) for name in slots}
        self.guards.attributes += [(value, name, held) for name, held in in_slots.items()]
        notes = _NOTES if hasattr(type(value), "save_pretrained") else ()
        items = [item for item in attributes.items() if item[0] not in notes]
        items += [(name, held) for name, held in in_slots.items() if held is not MISSING]
        return self._with("object", value, items, depth + 1)

    def _with(self, kind: str, value: Any, items: list[tuple[Any, Any]], depth: int) -> Snapshot:
        return Snapshot(kind, type(value), tuple((key, self.of(held, depth)) for key, held in items))


def _are_made_alike(first: types.FunctionType, second: types.FunctionType, depth: int) -> bool:
    mine, theirs = _around(first), _around(second)
    return len(mine) == len(theirs) and all(_is_alike(*pair, depth) for pair in zip(mine, theirs, strict=True))


def _is_alike(first: Any, second: Any, depth: int) -> bool:
    if first is second or (isinstance(first, PLAIN) and type(first) is type(second) and first == second):
        return True
    if not isinstance(first, types.FunctionType) or not isinstance(second, types.FunctionType):
        return False
    return depth > 0 and _are_made_alike(first, second, depth - 1)


def _around(function: types.FunctionType) -> list[Any]:
    """Everything that a function is made from."""
    cells = [getattr(cell, "cell_contents", None) for cell in function.__closure__ or ()]
    named = [part for pair in (function.__kwdefaults__ or {}).items() for part in pair]
    return [function.__code__, function.__globals__, *(function.__defaults__ or ()), None, *named, None, *cells]


def version_of(tensor: torch.Tensor) -> int:
    """How often the tensor was written to; 0 where nobody counts."""
    return 0 if tensor.is_inference() else tensor._version


def address_of(tensor: torch.Tensor) -> int:
    """Where its numbers lie, which ``tensor.data = ...`` changes; 0 where there are none."""
    if isinstance(tensor, FakeTensor):
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def _equal(first: torch.Tensor, second: torch.Tensor) -> bool:
    if {type(first), type(second)} - {torch.Tensor, nn.Parameter}:  # such as a FakeTensor, which has no numbers
        return False
    with _disable_current_modes():
        return bool(torch.equal(first, second))


def _is_open(value: Any) -> bool:
    """Whether an object is compared attribute by attribute: configurations, and what a person's own classes make."""
    kind = type(value)
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.ModuleType | logging.Logger):
        return False
    if dataclasses.is_dataclass(kind) or isinstance(value, (*_CONFIGS, *_KEEPERS)):
        return True
    has_attributes = isinstance(getattr(value, "__dict__", None), Mapping) or hasattr(kind, "__slots__")
    return has_attributes and kind.__module__.partition(".")[0] not in _FOREIGN


def _slots_of(value: Any) -> list[str]:
    declared = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    names = [name for slots in declared for name in ((slots,) if isinstance(slots, str) else slots)]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


_Restore = Callable[[Any, Any], object] | None


def _in_slot(value: Any, name: str) -> Any:
    """What is in a slot, without a person's own `__getattr__`, or `MISSING`."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return MISSING


_State = tuple[Callable[[Any], Any], Any, _Restore]  # how it is read, what was read, how it is put back


def _state_of(value: Any) -> _State | None:
    """The state of what is no container, but keeps numbers or moves on when it is used, or None."""
    if isinstance(value, _MEMORY) and memoryview(value).nbytes > LONG:
        return None
    for kinds, read, restore in _STATES:
        if isinstance(value, kinds) or (kinds is types.GeneratorType and type(value).__module__ in _ITERATORS):
            with contextlib.suppress(Exception):  # random.SystemRandom has none, a buffer may be closed
                held = read(value)
                return None if held is None else (read, held, restore)
            return None
    return None


def _fill(memory: Any, content: bytes) -> None:
    if isinstance(memory, bytearray):
        memory[:] = content
    elif isinstance(memory, array.array):
        del memory[:]
        memory.frombytes(content)
    else:
        ctypes.memmove(ctypes.addressof(memory), content, len(content))


def _take_out(line: queue.SimpleQueue[Any], size: int) -> None:
    """Take out what came last."""
    kept = [line.get_nowait() for _ in range(line.qsize())][:size]
    for one in kept:
        line.put(one)


def _set_generator(generator: np.random.Generator, state: Any) -> None:
    generator.bit_generator.state = state


def _written(buffer: Any) -> tuple[int, Any]:
    return buffer.tell(), buffer.getvalue()


def _rewrite(buffer: Any, state: tuple[int, Any]) -> None:
    buffer.seek(0)
    buffer.truncate()
    buffer.write(state[1])
    buffer.seek(state[0])


def _position(iterator: Any) -> Any:
    """Where an iterator or generator of Python stands, as far as it tells, or None."""
    if isinstance(iterator, types.GeneratorType):
        frame = iterator.gi_frame
        if frame is None:
            return "over"
        return frame.f_lasti, [(name, v) for name, v in frame.f_locals.items() if isinstance(v, PLAIN)]
    if not hasattr(type(iterator), "__next__"):
        return None
    if isinstance(iterator, itertools.count):
        return repr(iterator)
    if hasattr(iterator, "__length_hint__"):
        return iterator.__length_hint__()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of itertools will not tell for ever
        _, *parts = iterator.__reduce__()
    return [_place_in(one) for part in parts for one in (part if isinstance(part, tuple) else (part,))]


def _place_in(part: Any) -> Any:
    return len(part) if isinstance(part, list | tuple) else part if isinstance(part, PLAIN) else _position(part)


_ITERATORS = ("builtins", "itertools")
_STATES: tuple[tuple[Any, Callable[[Any], Any], _Restore], ...] = (
    (_MEMORY, bytes, _fill),
    (threading.Event, threading.Event.is_set, None),
    (random.Random, random.Random.getstate, random.Random.setstate),
    (np.random.Generator, operator.attrgetter("bit_generator.state"), _set_generator),
    (np.random.RandomState, np.random.RandomState.get_state, np.random.RandomState.set_state),
    ((io.StringIO, io.BytesIO), _written, _rewrite),
    (queue.SimpleQueue, queue.SimpleQueue.qsize, _take_out),
    (types.GeneratorType, _position, None),
)


class Guards:
    """What was seen when attributes were looked at; `hold` says whether all of it is still so.

    A guard may break although the content is equal, such as after another object of the same content was assigned. Then
    contents have to be compared. If all hold, nothing has changed. Slots are namespaces, a name in each, and the object
    there, or `MISSING`; tensors come with the count of writes to them, and where their numbers lie; sets and arrays,
    which may change in place, with a copy; states with how they are read and put back.
    """

    def __init__(self) -> None:
        self.slots: list[tuple[Mapping[str, Any], str, Any]] = []
        self.classes: list[tuple[Any, type]] = []
        self.attributes: list[tuple[Any, str, Any]] = []
        self.tensors: list[tuple[torch.Tensor, int, int]] = []
        self.sets: list[tuple[Set[Any], frozenset[Any]]] = []
        self.arrays: list[tuple[np.ndarray, bytes]] = []
        self.states: list[tuple[Any, Callable[[Any], Any], Any, _Restore]] = []
        self._mappings: list[tuple[dict[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = []
        self._sequences: list[tuple[list[Any] | deque[Any], tuple[Any, ...]]] = []
        self._empty: list[Any] = []

    def add_mapping(self, held: dict[Any, Any]) -> None:
        """Watch the keys and values of a dictionary."""
        if held:
            self._mappings.append((held, tuple(dict.keys(held)), tuple(dict.values(held))))
        else:
            self._empty.append(held)

    def add_sequence(self, held: list[Any] | deque[Any]) -> None:
        """Watch the entries of a list."""
        if held:
            self._sequences.append((held, tuple(held)))
        else:
            self._empty.append(held)

    def hold(self) -> bool:
        """Whether nothing has changed."""
        return (
            not any(self._empty)
            and not any(space.get(name, MISSING) is not value for space, name, value in self.slots)
            and not any(type(value) is not kind for value, kind in self.classes)
            and not any(_in_slot(value, name) is not held for value, name, held in self.attributes)
            and all(_is_same(dict.keys(d), keys) and _is_same(dict.values(d), v) for d, keys, v in self._mappings)
            and all(_is_same(held, entries) for held, entries in self._sequences)
            and all(held == copy for held, copy in self.sets)
            and all(held.tobytes() == content for held, content in self.arrays)
            and all(_is_in_state(value, read, held) for value, read, held, _ in self.states)
            and all(map(_is_unwritten, self.tensors))
        )

    def restore(self) -> None:
        """Put back what dictionaries, lists, sets and slots held; what is written to tensors stays written."""
        for held in self._empty:
            if held:
                held.clear()
        for mapping, keys, values in self._mappings:
            if not (_is_same(dict.keys(mapping), keys) and _is_same(dict.values(mapping), values)):
                kind: Any = OrderedDict if isinstance(mapping, OrderedDict) else dict
                kind.clear(mapping)
                kind.update(mapping, zip(keys, values, strict=True))
        for entries, content in self._sequences:
            if not _is_same(entries, content):
                entries.clear()
                entries.extend(content)
        for members, copy in self.sets:
            if members != copy and isinstance(members, set):
                members.clear()
                members.update(copy)
        for value, name, held in self.attributes:
            if _in_slot(value, name) is not held:
                object.__delattr__(value, name) if held is MISSING else object.__setattr__(value, name, held)
        for value, read, held, put_back in self.states:
            if put_back is not None and not _is_in_state(value, read, held):
                with contextlib.suppress(Exception):  # it may be closed, or be in use
                    put_back(value, held)


def _is_in_state(value: Any, read: Callable[[Any], Any], before: Any) -> bool:
    with contextlib.suppress(Exception):  # as where a buffer was closed
        now = read(value)
        return now is before or repr(now) == repr(before)
    return False


def _is_same(now: Any, before: tuple[Any, ...]) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _is_unwritten(guard: tuple[torch.Tensor, int, int]) -> bool:
    tensor, version, address = guard
    if not tensor.is_inference() and tensor._version != version:
        return False
    return not address or tensor.data_ptr() == address
