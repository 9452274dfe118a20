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
        is_taken: whether forward only takes something out there, and puts nothing in.
    """

    def __init__(self, words: str, is_returned: bool, is_taken: bool) -> None:
        super().__init__(words, words)
        self.is_returned, self.is_taken = is_returned, is_taken


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
        """What is in them now that was not there before, and what was taken out.

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
            put = [each for each in _differences(back, now) if not _is_taken(*each[1:])]
            lost = [path for path, then, one in put if then != _NONE or one.kind != "tensor"]
            for path, then, one in _differences(before, now):
                is_lost = any(path.startswith(other) or other.startswith(path) for other in lost)
                place = Given(f"{name}{path}", not is_lost, _is_taken(then, one))
                found[place, place.words] = (then, one)
        return found


def _inside(output: Any) -> list[Any]:
    return list(output.values()) if isinstance(output, dict) else [*output] if isinstance(output, list | tuple) else []


def _is_taken(before: Content, after: Content) -> bool:
    return after == ABSENT or _is_shortened(before, after)


def _differences(before: Content, after: Content) -> Iterator[tuple[str, Content, Content]]:
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


def _is_shortened(before: Content, after: Content) -> bool:
    """Whether entries of a list were taken out, and the others are in the same order."""
    kinds = before.kind == after.kind == "container" and before.value is after.value
    if not kinds or not isinstance(after.value, type) or issubclass(after.value, dict):
        return False
    remaining = iter(before.items)
    return len(after.items) < len(before.items) and all(
        any(_is_same(then, now) for _, then in remaining) for _, now in after.items
    )


def _is_same(before: Content, after: Content) -> bool:
    if before.kind == after.kind == "tensor":
        return before.value.tensor is after.value.tensor
    if before.items or after.items:
        keys = [[key for key, _ in content.items] for content in (before, after)]
        pairs = zip(before.items, after.items, strict=False)
        return keys[0] == keys[1] and before.value == after.value and all(_is_same(a, b) for (_, a), (_, b) in pairs)
    return before == after
