"""The program of the last capture, so that a profile of its graph need not trace the same step again.

It is taken once, and only while model, inputs and loss are the objects of the capture and hold what they held then.
None of them lives longer for it. Where something cannot be compared, the step is traced again.
"""

from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from remat_explorer.capture.autocast import Autocast
from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.inputs_and_outputs import Loss, tensors_in
from remat_explorer.capture.snapshots import LONG, PLAIN, address_of, version_of
from remat_explorer.capture.training_step import detached_inputs
from remat_explorer.graph import Graph

MOST = 200_000  # values that are looked at, and below what number of others each
DEEPEST = 20
OBJECTS = 2  # objects of a person's own within one another that are looked into


@dataclass(frozen=True, eq=False)
class LastCapture:
    """A program without its graph, and of what it is one."""

    graph: weakref.ref[Graph]
    program: Program
    marks: list[Any]


_last: LastCapture | None = None


def keep(
    program: Program, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Loss | None
) -> None:
    """Keep the program of a capture until the next one, or until its graph is gone."""
    global _last
    _last = None
    tensors = [*model.parameters(), *model.buffers(), *tensors_in((args, kwargs))]
    if any(type(t) not in (torch.Tensor, nn.Parameter) or t.device.type == "meta" for t in tensors):
        return  # such as FakeTensors, which no profile can take, and parts of sharded parameters
    if (marks := _marks(model, args, kwargs, loss)) is not None:
        without_graph: Any = replace(program, graph=None)  # type: ignore[arg-type]
        _last = LastCapture(weakref.ref(program.graph, _forget), without_graph, marks)


def take(
    graph: Graph, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Loss | None
) -> Program | None:
    """The program of the capture that gave ``graph``, once; None if it was of something else, or that has changed."""
    global _last
    last = _last
    if last is None or last.graph() is not graph or last.marks != _marks(model, args, kwargs, loss):
        return None
    _last = None
    is_broken = last.program.assumptions.broken(model, detached_inputs(args, kwargs)) is not None
    return None if is_broken else replace(last.program, graph=graph)


def _forget(graph: weakref.ref[Graph]) -> None:
    global _last
    if _last is not None and _last.graph is graph:
        _last = None


class _Untold(Exception):  # noqa: N818
    """Something of which nobody can tell later whether it is the same."""


class _Object:
    """An object that may be gone; it equals a living object alone, itself."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any) -> None:
        try:
            self._reference = weakref.ref(value)
        except TypeError:
            raise _Untold from None

    def __eq__(self, other: object) -> bool:
        mine = self._reference()
        return isinstance(other, _Object) and mine is not None and other._reference() is mine


def _marks(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, loss: Loss | None
) -> list[Any] | None:
    """What to compare later, or None where that would not tell."""
    marker = _Marker()
    try:
        marks = [Autocast.ambient(), torch.get_default_dtype(), marker.mark((args, kwargs or {}, loss))]
        for path, module in model.named_modules(remove_duplicate=False):
            marks += [path, type(module), _Object(module)]
            for name, value in vars(module).items():
                if name in ("_parameters", "_buffers"):  # what is written to these belongs to training
                    marks += [name, [(key, _of_tensor(tensor)) for key, tensor in value.items()]]
                else:
                    marks += [name, marker.mark(value)]
    except _Untold:
        return None
    return marks


class _Marker:
    def __init__(self) -> None:
        self._left = MOST

    def mark(self, value: Any, deep: int = 0, objects: int = 0) -> Any:
        """Something that equals the mark of the same value, as long as it holds the same."""
        self._left -= 1
        if self._left < 0 or deep > DEEPEST:
            raise _Untold
        if isinstance(value, PLAIN):
            return type(value), value
        if isinstance(value, torch.Tensor):
            return _of_tensor(value), version_of(value)
        if isinstance(value, np.ndarray):
            if value.nbytes > LONG or value.dtype == object:
                raise _Untold
            return value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, set | frozenset):
            members = list(set.__iter__(value) if isinstance(value, set) else frozenset.__iter__(value))
            if len(members) > LONG or not all(isinstance(member, PLAIN) for member in members):
                raise _Untold  # there is no order to compare them in
            return type(value), frozenset((type(member), member) for member in members)
        if (entries := _entries(value)) is not None:
            return type(value), [self.mark(entry, deep + 1, objects) for entry in entries]
        held = getattr(value, "__dict__", None)
        if isinstance(value, nn.Module | type) or objects >= OBJECTS or not isinstance(held, Mapping):
            return _Object(value)
        mark = type(value) if isinstance(value, types.SimpleNamespace) else _Object(value)
        return mark, [(name, self.mark(part, deep + 1, objects + 1)) for name, part in list(held.items())]


def _entries(value: Any) -> Iterable[Any] | None:
    """What is in a container, whatever its class makes of that; None if it is none."""
    if isinstance(value, dict):
        return [part for item in dict.items(value) for part in item]
    kind: Any = next((kind for kind in (list, tuple, deque) if isinstance(value, kind)), None)
    return None if kind is None else list(kind.__iter__(value))


def _of_tensor(tensor: torch.Tensor | None) -> Any:
    """Which tensor it is, by its number, and how it lies.

    Another one of the same number, layout and place in memory serves the program as well: parameters are bound when it
    runs, what was read out of buffers and inputs is compared, and constants live as long as the program.
    """
    if tensor is None:
        return None
    layout = tensor.dtype, tensor.device, tuple(tensor.shape), tensor.stride(), tensor.requires_grad
    return id(tensor), *layout, address_of(tensor)
