"""What a plan took from the model: attributes, hooks and modes that the trace read, and the layout of its tensors."""

from __future__ import annotations

import copy
import types
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from remat_explorer.capture import (
    ABSENT,
    MISSING,
    PLAIN,
    REGISTRIES,
    UNSET,
    AttributeReads,
    Loss,
    Place,
    Snapshot,
    SnapshotTaker,
)
from remat_explorer.errors import ExecutionError

_ELSEWHERE = Snapshot("defined by the class", None)
_TENSOR = Snapshot("a parameter or buffer", None)
_CALLED = (types.FunctionType, types.BuiltinFunctionType, type, nn.Module)
CLASS = "__class__"
LOSS = -1


class ModelState:
    """A model as a trace has read it. A plan serves as long as every attribute that the trace read holds the same.

    Attributes that the trace did not read may change. Parameters and buffers are read when the plan runs, so only their
    layout counts. What attributes hold after a forward pass has filled them (``settled``) is as good as what they hold
    now. Attributes have the path of their module, or its number where it has none, or `LOSS`: the loss may be an object
    with attributes, too.
    """

    def __init__(
        self,
        model: nn.Module,
        reads: AttributeReads,
        settled: Mapping[Place, Snapshot] = MappingProxyType({}),
        loss: Loss | None = None,
    ) -> None:
        self._model, self._reads, self._settled, self._loss = model, reads, settled, loss
        contents = SnapshotTaker(model, reads.mentioned)
        self._guards = contents.guards
        self.attributes: dict[tuple[Any, str], Snapshot] = {}
        self.kinds: dict[Any, str] = {}
        for place, module, names in _modules(model, reads):
            if module is None:
                self.attributes[place, CLASS] = ABSENT
                continue
            self.kinds[place] = type(module).__name__
            self.attributes[place, CLASS] = Snapshot("class", type(module))
            self._guards.classes.append((module, type(module)))
            for name in names:
                self.attributes[place, name] = self._content_of(contents, module, name, isinstance(place, str))
        self.kinds[LOSS] = type(loss).__name__
        self.attributes[LOSS, "loss"] = contents.of(loss)
        around = SnapshotTaker(model, reads.mentioned, everywhere=True)
        self._variables = [(variable, variable.get()) for variable in reads.variables]
        self._around = around.guards
        for variable, value in self._variables:
            self.attributes[variable, variable.words] = ABSENT if value is UNSET else _readable(around.of(value))
        self._tensors = list(_registered(model))
        first: dict[int, str] = {}
        for name, _, _, tensor in self._tensors:
            first.setdefault(id(tensor), name)
        self.shapes = {
            name: (first[id(tensor)], tuple(tensor.shape), tensor.requires_grad) for name, _, _, tensor in self._tensors
        }
        self.placement = tuple((t.device, t.dtype, t.stride()) for _, _, _, t in self._tensors)
        self._layouts = [_layout(tensor) for _, _, _, tensor in self._tensors]
        self._latest: ModelState | None = self

    @property
    def left_tensors(self) -> dict[Place, Snapshot]:
        """Attributes in which a forward pass would have left tensors that nobody reads, and what it leaves."""
        return {place: content.value for place, content in self._settled.items() if content.kind == "left"}

    def is_unchanged(self) -> bool:
        """Whether the model still is as it was, told in microseconds unless something was assigned since last time.

        An ExecutionError if other tensors stand in the places of parameters.
        """
        if self._latest is not None and self._latest._is_untouched():
            return True
        now = self.current()
        if name := now._foreign_parameter():
            raise ExecutionError(
                f"in the place of the parameter {name!r} is a tensor that is none, as torch.func.functional_call puts "
                "it there; a plan computes gradients of the model's own parameters. Call the rematerialized model "
                "itself, or give functional_call the model from which it was made"
            )
        if self.matches(now):
            self._latest = now
            return True
        return False

    def _is_untouched(self) -> bool:
        return (
            self._guards.hold()
            and self._around.hold()
            and not any(variable.get() is not value for variable, value in self._variables)
            and not any(registry.get(name) is not tensor for _, registry, name, tensor in self._tensors)
            and [_layout(tensor) for _, _, _, tensor in self._tensors] == self._layouts
        )

    def current(self) -> ModelState:
        """The same of the model as it is now."""
        return ModelState(self._model, self._reads, self._settled, self._loss)

    def of_copy(self, model: nn.Module) -> ModelState:
        """The same for a copy of the model, which has objects of its own where this one has others."""
        if self.is_unchanged():
            return ModelState(model, self._reads, self._settled, self._loss)
        other = copy.copy(self)
        other._model, other._latest = model, None
        return other

    def changes(self, now: ModelState) -> Iterator[tuple[Any, str, Snapshot, Snapshot]]:
        """Attributes that hold something else now: place and name, and what they hold then and now."""
        for key, then in self.attributes.items():
            content = now.attributes.get(key, ABSENT)
            if not self._is_same(key, then, content):
                yield *key, then, content

    def _is_same(self, place: Place, then: Snapshot, now: Snapshot) -> bool:
        if then == now or (place in self._settled and _is_filled(now, then, self._settled[place])):
            return True
        if place[1] != "__dict__" or then.kind != "container" or now.kind != "container":
            return False
        old, new = dict(then.items), dict(now.items)  # attributes, as a person's own __getattr__ looks them up
        return all(self._is_same((place[0], name), old.get(name, ABSENT), new.get(name, ABSENT)) for name in old | new)

    def matches(self, now: ModelState) -> bool:
        """Whether a plan for one serves the other."""
        return (
            self.shapes == now.shapes and self.placement == now.placement and not any(True for _ in self.changes(now))
        )

    def differs_in_caches(self, now: ModelState) -> bool:
        """Whether all that differs is what forward fills itself, and other tensors as attributes.

        So it is after a model that keeps masks or rotations was evaluated with inputs of other sizes.
        """
        return (self.shapes, self.placement) == (now.shapes, now.placement) and all(
            (place, name) in self._settled or _are_caches(then, content)
            for place, name, then, content in self.changes(now)
        )

    def has_moved(self, now: ModelState) -> bool:
        """Whether the same tensors lie elsewhere, or have another type, as after ``model.to(...)``."""
        return self.shapes == now.shapes and self.placement != now.placement

    def lies_elsewhere(self, now: ModelState) -> bool:
        """Whether a tensor lies on another device now, or has another type, whatever else has changed."""
        then, homes = (dict(zip(state.shapes, state.placement, strict=True)) for state in (self, now))
        return any(placement[:2] != then.get(name, placement)[:2] for name, placement in homes.items())

    def is_trained(self) -> bool:
        """Whether one of the tensors that the model had requires a gradient now."""
        return any(tensor.requires_grad for _, _, _, tensor in self._tensors)

    def _foreign_parameter(self) -> str:
        """The first parameter in whose place is something that is none."""
        owned = {id(module._parameters) for module in self._model.modules()}
        tensors = ((name, registry, tensor) for name, registry, _, tensor in self._tensors)
        return next((n for n, r, t in tensors if id(r) in owned and not isinstance(t, nn.Parameter)), "")

    def _content_of(self, contents: SnapshotTaker, module: nn.Module, name: str, inside: bool) -> Snapshot:
        own = vars(module)
        slots = self._guards.slots
        if name == "__dict__":
            self._guards.add_mapping(own)
            names = (key for key in own if key not in REGISTRIES)
            items = ((key, contents.of_attribute(key, own[key])) for key in names)
            return Snapshot("container", dict, tuple(items))
        if name in own:
            if name in ("_parameters", "_buffers") and inside:
                return _TENSOR
            slots.append((own, name, own[name]))
            return contents.of_attribute(name, own[name])
        slots.append((own, name, MISSING))
        holder = next((vars(kind) for kind in type(module).__mro__ if name in vars(kind)), None)
        if holder is not None:
            value = holder[name]
            if not isinstance(value, PLAIN):
                return _ELSEWHERE  # methods and properties
            slots.append((holder, name, value))
            return contents.of(value)
        found = ABSENT
        for registry in REGISTRIES:
            held = own.get(registry, {})
            if not (isinstance(held.get(name), torch.Tensor) and inside):
                slots.append((held, name, held.get(name, MISSING)))
            if name in held:
                is_tensor = isinstance(held[name], torch.Tensor) and inside
                found = _TENSOR if is_tensor else contents.of(held[name])
        return found


def _modules(model: nn.Module, reads: AttributeReads) -> Iterator[tuple[Any, nn.Module | None, dict[str, None]]]:
    """The modules that were read: by their paths those of ``model``, by numbers those that are no part of it."""
    now = dict(model.named_modules(remove_duplicate=False))
    for number, (path, module, names) in enumerate(reads.entries()):
        if path is None:
            if module is not None:
                yield number, module, names
        else:
            yield path, now.get(path), names


def _registered(model: nn.Module) -> Iterator[tuple[str, dict[str, Any], str, torch.Tensor]]:
    for path, module in model.named_modules(remove_duplicate=False):
        registries: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for registry in registries:
            for name, tensor in registry.items():
                if tensor is not None:
                    yield f"{path}.{name}" if path else name, registry, name, tensor


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.requires_grad, tensor.dtype, tensor.device, tensor.shape, tensor.stride()


def _readable(content: Snapshot) -> Snapshot:
    """Without the identity of objects, of which code reads only attributes; functions and modules are called."""
    if content.items:
        return Snapshot(content.kind, content.value, tuple((key, _readable(item)) for key, item in content.items))
    if content.kind != "other" or isinstance(getattr(content.value, "value", None), _CALLED):
        return content
    return Snapshot("other", None)


def _are_caches(then: Snapshot, now: Snapshot) -> bool:
    """Whether two contents are equal but for tensors of which one took the place of the other, or was not there."""
    if then == now:
        return True
    if then.kind == now.kind and then.kind in ("container", "object"):
        old, new = dict(then.items), dict(now.items)
        return then.value is now.value and all(_are_caches(old.get(k, ABSENT), new.get(k, ABSENT)) for k in old | new)
    tensors = [content.value.tensor for content in (then, now) if content.kind == "tensor"]
    others = [content for content in (then, now) if content.kind != "tensor"]
    nothing = all(content == ABSENT or content.value == (type(None), None) for content in others)
    return nothing and (len(tensors) < 2 or tensors[0] is not tensors[1])


def _is_filled(now: Snapshot, before: Snapshot, settled: Snapshot) -> bool:
    """Whether an attribute that forward fills holds what a forward pass leaves there; entries may have joined it."""
    if settled.kind == "left" or now == settled:
        return True
    if not (now.kind == settled.kind == "container" and now.value is settled.value and issubclass(now.value, dict)):
        return False
    choices = [dict(content.items) for content in (before, settled)]
    return all(
        any(key in items and items[key] == content for items in choices)
        for key, content in now.items
        if any(key in items for items in choices)
    )
