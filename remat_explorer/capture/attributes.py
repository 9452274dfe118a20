"""Attributes of a model's modules: which a trace reads, and which a forward pass changes.

`AttributeSnapshot` compares and restores attributes and variables around a model, `InputSnapshot` the lists,
dictionaries and objects that a call is given. `AttributeReads` records what modules are asked for in a trace: what a
static graph of the model depends on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.snapshots import ABSENT, PLAIN, Snapshot, SnapshotTaker
from remat_explorer.capture.variables import UNSET, Variable

Place = tuple[str | Variable, str]  # path of a module, and the name of its attribute; or a variable, and its words
Changes = dict[Place, tuple[Snapshot, Snapshot]]  # before and after


class AttributeSnapshot:
    """Everything that the attributes of a model's modules hold now, parameters and buffers apart."""

    def __init__(self, model: nn.Module, variables: Sequence[Variable] = ()) -> None:
        self._model = model
        contents = SnapshotTaker(model)
        self._variables = [(variable, variable.get()) for variable in variables]
        self._held = _contents(contents, model, variables)
        self._guards = contents.guards  # these keep everything that was there
        for module in model.modules():
            self._guards.add_mapping(vars(module))

    def restore(self) -> None:
        """Let everything hold what it held, in place."""
        self._guards.restore()
        for variable, value in self._variables:
            if variable.get() is not value:
                variable.put(value)

    def changes(self) -> Changes:
        """What holds something else now."""
        if self._guards.hold() and all(variable.get() is value for variable, value in self._variables):
            return {}
        variables = [variable for variable, _ in self._variables]
        now = _contents(SnapshotTaker(self._model), self._model, variables)
        pairs = {place: (self._held.get(place, ABSENT), now.get(place, ABSENT)) for place in {**self._held, **now}}
        return {place: (before, after) for place, (before, after) in pairs.items() if before != after}


def _contents(contents: SnapshotTaker, model: nn.Module, variables: Sequence[Variable]) -> dict[Place, Snapshot]:
    held = {place: contents.of_attribute(place[1], value) for place, value in _attributes(model)}
    for variable in variables:
        value = variable.get()
        held[variable, variable.words] = ABSENT if value is UNSET else contents.of(value)
    return held


def _attributes(model: nn.Module) -> Iterator[tuple[Place, Any]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_flat_weight_refs"):  # the last only tells when weights change
                yield (path, name), value


_NONE = Snapshot("plain", (type(None), None))  # stands for tensors beside a loss, in what a plan returns


class InputEntry(Variable):
    """A place in an input.

    Attributes:
        is_returned: whether the model returns this very input, and a plan one with what forward wrote there.
        is_taken: whether forward only takes something out there, and puts nothing in.
    """

    def __init__(self, words: str, is_returned: bool, is_taken: bool) -> None:
        super().__init__(words, words)
        self.is_returned, self.is_taken = is_returned, is_taken


class InputSnapshot:
    """The inputs of a call as they are before it."""

    def __init__(self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._model = model
        named = [(f"input {number}", value) for number, value in enumerate(args)]
        self._named = [*named, *((f"input {name!r}", value) for name, value in kwargs.items())]
        contents = SnapshotTaker(model)
        self._before = [contents.of(value) for _, value in self._named]
        self._guards = contents.guards
        self._guards.tensors.clear()  # what is written to tensors is another matter

    def restore(self) -> None:
        """Let containers and objects hold what they held."""
        self._guards.restore()

    def changes(self, output: Any, planned: Any) -> Changes:
        """What is in them now that was not there before, and what was taken out.

        ``output`` is what the model has returned, ``planned`` what a plan returns for it.
        """
        if self._guards.hold():
            return {}
        returned = [(output, planned), *zip(_inside(output), _inside(planned), strict=False)]
        contents, found = SnapshotTaker(self._model), {}
        for (name, value), before in zip(self._named, self._before, strict=True):
            now = contents.of(value)
            back = next((contents.of(theirs) for one, theirs in returned if one is value), ABSENT)
            put = [each for each in _differences(back, now) if not _is_taken(*each[1:])]
            lost = [path for path, then, one in put if then != _NONE or one.kind != "tensor"]
            for path, then, one in _differences(before, now):
                is_lost = any(path.startswith(other) or other.startswith(path) for other in lost)
                place = InputEntry(f"{name}{path}", not is_lost, _is_taken(then, one))
                found[place, place.words] = (then, one)
        return found


def _inside(output: Any) -> list[Any]:
    return list(output.values()) if isinstance(output, dict) else [*output] if isinstance(output, list | tuple) else []


def _is_taken(before: Snapshot, after: Snapshot) -> bool:
    return after == ABSENT or _is_shortened(before, after)


def _differences(before: Snapshot, after: Snapshot) -> Iterator[tuple[str, Snapshot, Snapshot]]:
    """Where two contents differ, with both parts."""
    if _is_same(before, after):
        return
    is_alike = (before.kind, before.value) == (after.kind, after.value)
    if not is_alike or before.kind not in ("container", "object") or _is_shortened(before, after):
        yield "", before, after
        return
    was, now = dict(before.items), dict(after.items)
    for key in [*now, *(key for key in was if key not in now)]:
        if before.kind == "object" and isinstance(getattr(before.value, key, None), functools.cached_property):
            continue  # whoever asks for it gets it
        for path, then, one in _differences(was.get(key, ABSENT), now.get(key, ABSENT)):
            yield (f".{key}" if before.kind == "object" else f"[{key!r}]") + path, then, one


def _is_shortened(before: Snapshot, after: Snapshot) -> bool:
    """Whether entries of a list were taken out, and the others are in the same order."""
    kinds = before.kind == after.kind == "container" and before.value is after.value
    if not kinds or not isinstance(after.value, type) or issubclass(after.value, dict):
        return False
    remaining = iter(before.items)
    return len(after.items) < len(before.items) and all(
        any(_is_same(then, now) for _, then in remaining) for _, now in after.items
    )


def _is_same(before: Snapshot, after: Snapshot) -> bool:
    if before.kind == after.kind == "tensor":
        return before.value.tensor is after.value.tensor
    if before.items or after.items:
        keys = [[key for key, _ in content.items] for content in (before, after)]
        pairs = zip(before.items, after.items, strict=False)
        return keys[0] == keys[1] and before.value == after.value and all(_is_same(a, b) for (_, a), (_, b) in pairs)
    return before == after


_Objects = dict[int, tuple[Any, dict[str, None]]]  # by their identity, with names
REGISTRIES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_OWN = "remat_explorer.capture."
_NOT_A_PERSONS = tuple(str(Path(place).parent) + os.sep for place in (torch.__file__, Path(__file__).parent))


def _namespace(value: Any) -> dict[str, Any] | None:
    """The attributes of an object, None for one that has but slots."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


class AttributeReads:
    """Records the attributes that are read, by name, also those that are not there.

    An attribute that forward writes before it reads it is no input of forward, and is left out. A read of the whole
    ``__dict__``, or of a registry such as ``_modules``, is recorded under that name.

    Args:
        model: whose modules have paths. Other modules are recorded while `calling`: such as a loss, or what is kept in
            a plain list.
        variables: what the code reaches outside of modules.
        mentioned: the names that the code mentions, which are looked at in objects that variables hold.
        classes: of plain objects whose attributes are recorded while `calling`, also where their names are computed.

    Attributes:
        names: for each module, by its identity, a weak reference to it and the names.

    >>> layer = nn.Dropout(0.1)
    >>> reads = AttributeReads(layer)
    >>> with reads.recording(), reads.calling():
    ...     y = layer(torch.ones(2))
    >>> {"p", "training", "forward"} <= set(reads.names[id(layer)][1])
    True
    """

    def __init__(
        self,
        model: nn.Module,
        variables: Sequence[Variable] = (),
        mentioned: frozenset[str] = frozenset(),
        classes: Sequence[type] = (),
    ) -> None:
        self.variables, self.mentioned = variables, mentioned
        self._classes = [kind for kind in classes if "__getattribute__" not in vars(kind)]
        self._asked: list[_Objects] = []  # in each call
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
            with self._recording_objects():
                yield
        finally:
            for name, method in before.items():
                if method is None:
                    delattr(nn.Module, name)
                else:
                    setattr(nn.Module, name, method)

    @contextlib.contextmanager
    def _recording_objects(self) -> Iterator[None]:
        """Record what plain objects of the classes are asked for in a call, in this thread."""
        thread, self._asked = threading.get_ident(), []
        with contextlib.ExitStack() as stack:
            for kind in self._classes:

                def get(value: Any, name: str, kind: type = kind) -> Any:
                    is_module = issubclass(type(value), nn.Module)  # of a class that is mixed in
                    if self._calling and self._asked and not is_module and threading.get_ident() == thread:
                        self._asked[-1].setdefault(id(value), (value, {}))[1][name] = None
                    return super(kind, value).__getattribute__(name)

                kind.__getattribute__ = get  # type: ignore[method-assign]
                stack.callback(type.__delattr__, kind, "__getattribute__")
            yield

    def of_objects(self) -> list[Variable]:
        """The attributes of objects that the last two calls asked for; objects that a call makes are none of both."""
        first, second = self._asked[-2:] if len(self._asked) > 1 else ({}, {})
        self._asked = []
        found: dict[Variable, None] = {}
        for key, (value, names) in second.items():
            kind, held = type(value), _namespace(value)
            if key not in first or held is None:
                continue
            for name in names:
                if name == "__dict__":
                    found[Variable(f"what a {kind.__name__} holds", held)] = None
                elif not name.startswith("__"):
                    holder = next((base for base in kind.__mro__ if name in vars(base)), None)
                    if holder is None or not hasattr(type(vars(holder)[name]), "__get__"):
                        found[Variable(f"the attribute {name!r} of a {kind.__name__}", held, name)] = None
                    if holder is not None and name not in held and isinstance(vars(holder)[name], PLAIN):
                        words = f"the attribute {name!r} of the class {holder.__name__}"
                        found[Variable(words, holder, name)] = None
        known = set(self.variables)
        return [variable for variable in found if variable not in known]

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Around a call of the model: what happens inside is the person's code."""
        self._written.clear()
        self._asked.append({})
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
