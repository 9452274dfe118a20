"""Whether attributes still hold what they held, told in microseconds: by identity, and by versions of tensors."""

from __future__ import annotations

import operator
from collections import OrderedDict, deque
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import torch

MISSING = object()


class Guards:
    """What was seen when attributes were looked at; `hold` says whether all of it is still so.

    A guard may break although the content is equal, such as after another object of the same content was assigned.
    Then contents have to be compared. If all hold, nothing has changed.

    Attributes:
        slots: namespaces, a name in each, and the object there, or `MISSING`.
        classes: objects and their classes.
        attributes: objects without a namespace, a name in each, and the object there.
        tensors: tensors with the count of writes to them, and where their numbers lie.
        sets, arrays: what may change in place, with a copy.

    >>> held = [1, 2]
    >>> guards = Guards()
    >>> guards.add_sequence(held)
    >>> before = guards.hold()
    >>> held[0] = 3
    >>> before, guards.hold()
    (True, False)
    """

    def __init__(self) -> None:
        self.slots: list[tuple[Mapping[str, Any], str, Any]] = []
        self.classes: list[tuple[Any, type]] = []
        self.attributes: list[tuple[Any, str, Any]] = []
        self.tensors: list[tuple[torch.Tensor, int, int]] = []
        self.sets: list[tuple[Set[Any], frozenset[Any]]] = []
        self.arrays: list[tuple[np.ndarray, bytes]] = []
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
            and not any(getattr(value, name, MISSING) is not held for value, name, held in self.attributes)
            and all(_is_same(dict.keys(d), keys) and _is_same(dict.values(d), v) for d, keys, v in self._mappings)
            and all(_is_same(held, entries) for held, entries in self._sequences)
            and all(held == copy for held, copy in self.sets)
            and all(array.tobytes() == content for array, content in self.arrays)
            and all(map(_is_unwritten, self.tensors))
        )

    def restore(self) -> None:
        """Put back what dictionaries, lists and sets held; what is written to tensors stays written."""
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


def _is_same(now: Any, before: tuple[Any, ...]) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _is_unwritten(guard: tuple[torch.Tensor, int, int]) -> bool:
    tensor, version, address = guard
    if not tensor.is_inference() and tensor._version != version:
        return False
    return not address or tensor.data_ptr() == address
