"""What forward writes into the containers that it is given: lists, dictionaries and objects of the caller."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from remat_explorer.capture.step.attributes import Changes
from remat_explorer.capture.step.contents import ABSENT, Content, Contents
from remat_explorer.capture.step.variables import Variable

_NONE = Content("plain", (type(None), None))  # stands for tensors beside a loss, in what a plan returns


class Given(Variable):
    """A place in an input.

    Attributes:
        is_returned: whether the model returns this very input, and a plan one with what forward wrote there.
    """

    def __init__(self, words: str, is_returned: bool) -> None:
        super().__init__(words, words)
        self.is_returned = is_returned


class GivenInputs:
    """The inputs of a call as they are before it.

    >>> batch = {"x": 1}
    >>> given = GivenInputs(nn.ReLU(), (batch,), {})
    >>> batch["y"] = 2
    >>> [place.words for place, _ in given.changes(None, None)]
    ["input 0['y']"]
    >>> given.restore(), batch
    (None, {'x': 1})
    """

    def __init__(self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._model = model
        named = [(f"input {number}", value) for number, value in enumerate(args)]
        self._named = [*named, *((f"input {name!r}", value) for name, value in kwargs.items())]
        contents = Contents(model)
        self._before = [contents.of(value) for _, value in self._named]
        self._guards = contents.guards
        self._guards.tensors.clear()  # what is written to tensors is another matter

    def restore(self) -> None:
        """Let containers and objects hold what they held."""
        self._guards.restore()

    def changes(self, output: Any, planned: Any) -> Changes:
        """What is in them now that was not there before; what was only taken out does not count.

        Args:
            output: what the model has returned.
            planned: what a plan returns for it.
        """
        if self._guards.hold():
            return {}
        returned = [(output, planned), *zip(_inside(output), _inside(planned), strict=False)]
        contents, found = Contents(self._model), {}
        for (name, value), before in zip(self._named, self._before, strict=True):
            now = contents.of(value)
            back = next((contents.of(theirs) for one, theirs in returned if one is value), ABSENT)
            lost = [path for path, then, one in _new_in(back, now) if then != _NONE or one.kind != "tensor"]
            for path, then, one in _new_in(before, now):
                is_lost = any(path.startswith(other) or other.startswith(path) for other in lost)
                place = Given(f"{name}{path}", not is_lost)
                found[place, place.words] = (then, one)
        return found


def _inside(output: Any) -> list[Any]:
    return list(output.values()) if isinstance(output, dict) else [*output] if isinstance(output, list | tuple) else []


def _new_in(before: Content, after: Content) -> Iterator[tuple[str, Content, Content]]:
    """Where two contents differ, with both parts."""
    if _is_same(before, after):
        return
    if (before.kind, before.value) != (after.kind, after.value) or before.kind not in ("container", "object"):
        yield "", before, after
        return
    if isinstance(before.value, type) and not issubclass(before.value, dict) and len(after.items) < len(before.items):
        remaining = iter(before.items)
        if all(any(_is_same(then, now) for _, then in remaining) for _, now in after.items):
            return  # entries are taken out, and the others are in the same order
    was = dict(before.items)
    for key, now in after.items:
        if before.kind == "object" and isinstance(getattr(before.value, key, None), functools.cached_property):
            continue  # whoever asks for it gets it
        for path, then, one in _new_in(was.get(key, ABSENT), now):
            yield (f".{key}" if before.kind == "object" else f"[{key!r}]") + path, then, one


def _is_same(before: Content, after: Content) -> bool:
    if before.kind == after.kind == "tensor":
        return before.value.tensor is after.value.tensor
    if before.items or after.items:
        keys = [[key for key, _ in content.items] for content in (before, after)]
        pairs = zip(before.items, after.items, strict=False)
        return keys[0] == keys[1] and before.value == after.value and all(_is_same(a, b) for (_, a), (_, b) in pairs)
    return before == after
