"""What differs between now and when a plan was made, in words, each with the advice that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from remat_explorer.capture import HOOKS, FunctionSnapshot, Identity, Snapshot, TensorPlaceholder, Variable
from remat_explorer.runtime.call_signature import Layout, Signature, serves_leaf
from remat_explorer.runtime.model_state import CLASS, ModelState

Words = tuple[str, str]  # what differs, and what to do
ANEW = "rematerialize(..., resolve=True), which plans anew"
_MODES = {True: "training", False: "evaluation"}


def difference_of_inputs(
    planned: Signature, now: Signature, planned_paths: Sequence[str], paths: Sequence[str]
) -> Words:
    """The first input that differs; the paths are what to call each input of the two calls."""
    if planned.nesting != now.nesting or len(planned.leaves) != len(now.leaves):
        return _of_nesting(planned_paths, paths), f"Pass the same inputs in the same containers, or {ANEW} for others"
    for path, mine, theirs in zip(paths, planned.leaves, now.leaves, strict=True):
        if not serves_leaf(mine, theirs):
            return f"{path} is {_input(theirs)}, but the plan was made for {_input(mine)}", _advice(mine, theirs)
    return "", ""


def _of_nesting(planned_paths: Sequence[str], paths: Sequence[str]) -> str:
    """Which input is missing, one too many, or in another container."""
    gone = [path for path in planned_paths if path not in paths]
    new = [path for path in paths if path not in planned_paths]
    for one, others, words in ((gone, new, "a container now, but the plan was made for one value"),
                               (new, gone, "one value now, but the plan was made for a container")):  # fmt: skip
        if path := next((path for path in one if any(other.startswith(path) for other in others)), ""):
            return f"{path} is {words}"
    if gone:
        return f"{gone[0]} is missing, with which the plan was made"
    if new:
        return f"{new[0]} is given, but the plan was made without it"
    return "the inputs are in containers of another type or order than those that the plan was made for"


def _input(leaf: Any) -> str:
    return str(leaf) if isinstance(leaf, Layout) else _short(repr(leaf))


def _advice(mine: Any, theirs: Any) -> str:
    if isinstance(mine, Layout) and isinstance(theirs, Layout):
        if mine.device != theirs.device:
            return f"Bring the input to the device of the model, with .to({str(mine.device)!r})"
        if mine.dtype != theirs.dtype:
            dtype = str(mine.dtype)
            return f"Pass the input as it was, with .to({dtype}), or {ANEW} for others"
        if theirs.gradient and not mine.gradient:
            return (
                "Give rematerialize an input that requires a gradient, so that the plan computes it, pass "
                f".detach() where none is wanted, or {ANEW} for both"
            )
        return f"Pass inputs with as many dimensions as those that it was made with, or {ANEW} for others"
    if isinstance(mine, int | float | complex) and isinstance(theirs, int | float | complex):
        return f"A number is a constant of the plan: pass it as a tensor, or {ANEW} for each number"
    return f"Plans are static: pass what it was made with, or {ANEW} for others"


def difference_of_surroundings(planned: Signature, now: Signature) -> Words:
    """The first setting around the model that differs, or two empty texts."""
    if planned.autocast != now.autocast:
        text = f"autocast is {_autocast(now)}, but the plan was made with it {_autocast(planned)}"
        return text, f"Put the same torch.autocast around rematerialize and around every call of the model, or {ANEW}"
    for name, value in planned.settings.items():
        if now.settings[name] != value:
            text = f"{name} is {now.settings[name]}, but the plan was made with {value}"
            return text, f"Set it before rematerialize, and leave it so, or {ANEW}"
    if planned.hooks != now.hooks:
        return "hooks for all modules were registered or removed since", f"Do that before rematerialize, or {ANEW}"
    return "", ""


def _autocast(signature: Signature) -> str:
    autocast = signature.autocast
    on = " and ".join(f"on for {device} in {dtype}" for device, dtype in autocast.types) or "off"
    return on if autocast.keeps_casts else f"{on}, without its cache"


def difference_of_models(planned: ModelState, now: ModelState) -> Words:
    """The first thing in the model that differs, or two empty texts."""
    if words := _of_tensors(planned, now):
        return words
    found = sorted(planned.changes(now), key=lambda change: _rank(change[1]))
    for place, name, then, content in found:
        return _of_attribute(planned, place, name, then, content)
    if planned.placement != now.placement:
        return "the model lies elsewhere than where the plan was made for", "Plan anew"
    return "", ""


def _rank(name: str) -> int:
    """Causes before their consequences."""
    return 0 if name == CLASS else 2 if name == "_modules" else 1


def _of_tensors(planned: ModelState, now: ModelState) -> Words | None:
    before = f"Do that before rematerialize, or {ANEW}"
    for name, (owner, shape, trained) in planned.shapes.items():
        if name not in now.shapes:
            return f"the model no longer has {name!r}, with which the plan was made", before
        owner_now, shape_now, trained_now = now.shapes[name]
        if shape != shape_now:
            sizes = f"{list(shape_now)}, but the plan was made for {list(shape)}"
            return f"{name!r} has the shape {sizes}", before
        if trained != trained_now:
            words = ("requires a gradient", "is frozen") if trained_now else ("is frozen", "a gradient of it")
            text = f"the parameter {name!r} {words[0]}, but the plan was made for {words[1]}"
            return text, f"Freeze what shall be frozen before rematerialize, or {ANEW}"
        if owner != owner_now:
            text = f"{name!r} is the same tensor as {owner_now!r}, but was that of {owner!r} when the plan was made"
            return text, before
    for name in now.shapes:
        if name not in planned.shapes:
            return f"the model has got {name!r}, without which the plan was made", before
    return None


def _of_attribute(planned: ModelState, place: Any, name: str, then: Snapshot, now: Snapshot) -> Words:
    kind = planned.kinds.get(place, "module")
    module = f"{place!r} ({kind})" if place else f"the model ({kind})"
    module = module if isinstance(place, str) else f"a {kind} that is no part of the model"
    before = f"Do that before rematerialize, or {ANEW}"
    if name == CLASS:
        if now.kind == "absent":
            return f"the model no longer has the module {place!r}, with which the plan was made", before
        return f"{module} is now a {now.value.__name__}", before
    if name == "training":
        where = repr(place) if place else "the model"
        mode, planned_mode = _MODES[bool(now.value[1])], _MODES[bool(then.value[1])]
        text = f"{where} is in {mode} mode, but the plan was made for {planned_mode}"
        return text, f"Call train() and eval() before rematerialize as they shall be in training, or {ANEW}"
    if name in HOOKS:
        return _of_hooks(name, module, then, now, before)
    if isinstance(place, Variable):
        path, old, new = innermost_difference("", then, now)
        return _of_value(f"{name}, at {path.removeprefix('.')}," if path else name, old, new)
    path, old, new = innermost_difference(name, then, now)
    if then.kind == now.kind == "module":
        return f"{path} of {module} is another module than the one that the plan was made with", before
    return _of_value(f"the attribute {path} of {module}", old, new)


def _of_value(what: str, old: Snapshot, new: Snapshot) -> Words:
    described, planned_as = describe(new), describe(old)
    advice = f"Set it before rematerialize, or {ANEW} for each value"
    if described != planned_as:
        return f"{what} is {described}, but the plan was made for {planned_as}", advice
    if old.kind == new.kind == "tensor" and old.value.tensor is new.value.tensor:
        return f"{what}, {described}, was written to since the plan was made", advice
    return f"{what} is another one than when the plan was made: {described}", advice


def _of_hooks(name: str, module: str, then: Snapshot, now: Snapshot, before: str) -> Words:
    kind = name.strip("_").removesuffix("s").replace("_", " ")
    old, new = ([content for _, content in hooks.items] for hooks in (then, now))
    for hook, other in zip(old, new, strict=False):
        path, one, two = innermost_difference(describe(hook), hook, other)
        if path != describe(hook):
            return _of_value(f"{path} of the {kind} of {module}", one, two)
    added = next((hook for hook in new if hook not in old), None)
    if added is not None:
        return f"the {kind} {describe(added)} of {module} was registered after the plan was made", before
    removed = next((hook for hook in old if hook not in new), None)
    which = f"the {kind} {describe(removed)}" if removed is not None else f"a {kind}"
    return f"{which} of {module} was removed after the plan was made", before


def innermost_difference(path: str, old: Snapshot, new: Snapshot) -> tuple[str, Snapshot, Snapshot]:
    """The first part in which two contents differ, such as a field of a configuration, by its path."""
    is_alike = old.value is new.value or (old.kind == "method" and old.value == new.value)
    if old.kind == new.kind and old.kind in ("container", "object", "method") and is_alike:
        then, now = dict(old.items), dict(new.items)
        missing = Snapshot("absent", None)
        for key in [*then, *(key for key in now if key not in then)]:
            if then.get(key, missing) != now.get(key, missing):
                place = f"{path}[{key!r}]" if old.kind == "container" else f"{path}.{key}"
                return innermost_difference(place, then.get(key, missing), now.get(key, missing))
    return path, old, new


def describe(content: Snapshot) -> str:
    """What an attribute holds, for people."""
    value = content.value
    if content.kind == "plain":
        return _short(repr(value[1]))
    if content.kind == "tensor":
        tensor: torch.Tensor = value.tensor
        if isinstance(tensor, TensorPlaceholder):
            return "a tensor that no step by a plan leaves there"
        return f"a tensor, {str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
    if content.kind == "own":
        return f"the model's {value!r}"
    if content.kind == "module":
        return f"the module {value[0]!r} ({value[1].__name__})"
    if content.kind == "array":
        return f"an array of {value[0]} of shape {list(value[1])}"
    if content.kind in ("container", "object"):
        return f"a {_kind(value)} of {len(content.items if isinstance(value, type) else value[1])}"
    if content.kind == "state":
        name = value[0].__name__
        return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
    if content.kind == "absent":
        return "not there"
    if isinstance(value, Identity | FunctionSnapshot):
        name = getattr(value.value, "__name__", None)
        return str(name) if name else f"a {type(value.value).__name__}"
    return content.kind


def _kind(value: Any) -> str:
    return (value if isinstance(value, type) else value[0]).__name__


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
