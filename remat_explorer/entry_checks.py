"""Entries of files, and arguments of public functions: one reader of each kind for every format and function."""

from __future__ import annotations

import collections.abc
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from remat_explorer.documents import quote, require_format, require_keys
from remat_explorer.errors import ArgumentError, RematError, shown
from remat_explorer.quantities import MOST_BYTES, format_bytes

MOST_THREADS = 1024


def require_bytes(entry: Any, where: str, error: type[RematError]) -> int:
    """``entry`` itself, if it is a whole number from 0 to `MOST_BYTES`."""
    if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
        raise error(f"{where} is not a number of bytes: {quote(entry)}; expected a whole number of at least 0")
    if entry > MOST_BYTES:
        raise error(
            f"{where} is {quote(entry)} bytes, more than {format_bytes(MOST_BYTES)}, the largest supported number"
        )
    return entry


def require_number(entry: Any, where: str, error: type[RematError], least: float = 0.0) -> float:
    """``entry`` itself, if it is a finite number of at least ``least``, neither too large nor too small for a float."""
    finite = isinstance(entry, int | float) and not isinstance(entry, bool) and least <= entry <= sys.float_info.max
    if not finite:
        raise error(f"{where} is not a number of at least {least:g}: {quote(entry)}")
    return entry


def require_text(entry: Any, where: str, error: type[RematError]) -> str:
    """``entry`` itself, if it is a string that every file and terminal can hold: one without lone surrogates."""
    if not isinstance(entry, str):
        raise error(f"{where} is not a string: {quote(entry)}")
    if not entry.isascii():
        try:
            entry.encode()
        except UnicodeEncodeError:
            raise error(f"{where} holds half of a surrogate pair, which is no text: {quote(entry)}") from None
    return entry


def require_list(entry: Any, where: str, error: type[RematError]) -> list[Any]:
    """``entry`` itself, if it is a list."""
    if not isinstance(entry, list):
        raise error(f"{where} is not a list: {quote(entry)}")
    return entry


def require_flag(entry: Any, where: str, error: type[RematError]) -> bool:
    """``entry`` itself, if it is true or false."""
    if not isinstance(entry, bool):
        raise error(f"{where} is neither true nor false: {quote(entry)}")
    return entry


def require_true(entry: Any, where: str, error: type[RematError]) -> bool:
    """``entry`` itself, if it is true, which is said only where it is so."""
    if entry is not True:
        raise error(f"{where} is not true: {quote(entry)}; leave it out where it is false")
    return entry


def require_whole(entry: Any, where: str, error: type[RematError]) -> int:
    """``entry`` itself, if it is a whole number of at least 0, such as the place of something in a list."""
    if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
        raise error(f"{where} is not a whole number of at least 0: {quote(entry)}")
    return entry


Reader = Callable[[Any, str, type[RematError]], Any]
"""Reads an entry of a file: what stands there, its place in the file, and the error that says what is wrong with it."""


def as_it_is(entry: Any, where: str, error: type[RematError]) -> Any:
    """The reader of an entry that who reads the file looks at."""
    return entry


def or_null(reader: Reader) -> Reader:
    """The reader of an entry that may be null, too."""
    return lambda entry, where, error: None if entry is None else reader(entry, where, error)


def list_of(reader: Reader, empty: bool = True) -> Reader:
    """The reader of a list whose entries another one reads; it may be ``empty``."""

    def read(entries: Any, where: str, error: type[RematError]) -> tuple[Any, ...]:
        if not require_list(entries, where, error) and not empty:
            raise error(f"{where} is an empty list; leave it out where there is nothing to list")
        return tuple(reader(entry, f"{where}[{i}]", error) for i, entry in enumerate(entries))

    return read


Table = Mapping[str, Reader]
"""The keys of a JSON object, and how what stands there is read."""
_NO_MORE: Table = {}


def read_entry(
    entry: Any, where: str, error: type[RematError], table: Table, optional: Table = _NO_MORE
) -> dict[str, Any]:
    """What an object of a file holds by key: all of a table, what there is of another; "" is the place of the file.

    >>> read_entry({"costs": [1, -1]}, "values[3]", RematError, {"costs": list_of(require_number)})
    Traceback (most recent call last):
        ...
    remat_explorer.errors.RematError: values[3].costs[1] is not a number of at least 0: -1
    """
    if isinstance(entry, dict):
        table = {**table, **{key: reader for key, reader in optional.items() if key in entry}}
    require_keys(entry, table, where or "the file", error)
    inside = f"{where}." if where else ""
    return {key: reader(entry[key], inside + key, error) for key, reader in table.items()}


def read_document(
    document: Any, name: str, version: int, error: type[RematError], table: Table, optional: Table = _NO_MORE
) -> dict[str, Any]:
    """`read_entry` of a whole file, of a format and version of ours."""
    require_format(document, name, version, error)
    return read_entry(document, "", error, {"format": as_it_is, "version": as_it_is, **table}, optional)


@dataclass(frozen=True)
class Within:
    """As part of an annotation: the numbers that an argument takes."""

    least: float
    most: float = math.inf
    what: str = field(default="", repr=False)  # where a page of the docs shows a signature, it is no name of anything

    def __contains__(self, number: Any) -> bool:
        return bool(self.least <= number <= self.most)

    def __str__(self) -> str:
        unit = f" of {self.what}" if self.what else ""
        return f"{unit}, at least {self.least:g}" + ("" if math.isinf(self.most) else f" and at most {self.most:g}")


Seconds = Annotated[float, Within(0, what="seconds")]
Threads = Annotated[int, Within(1, MOST_THREADS, "threads")]
Count = Annotated[int, Within(1)]
Repeats = Annotated[int, Within(1, 10_000, "runs")]
Workers = Annotated[int, Within(1, MOST_THREADS, "tasks at a time")]
"""What arguments of public functions are annotated with; `require_arguments` refuses what is no such number."""

Misfit = tuple[str, Any, Any]
"""Where an argument does not fit its annotation: a name, what stands there, and what its annotation is."""

_WORDS: dict[Any, str] = {
    None: "None",
    NoneType: "None",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    "Graph": "a graph, as remat_explorer.capture or Graph.load gives it",
    "Module": "a torch.nn.Module",
    "Schedule": "a schedule, as the attribute of a solution is",
    "Solution": "a solution, as remat_explorer.solve or Solution.load gives it",
}


def require_arguments(
    function: Callable[..., Any],
    given: Mapping[str, Any],
    but: Collection[str] = (),
    briefly: Collection[str] = (),
) -> None:
    """Refuse arguments that do not fit the annotations of a public function, at its first line.

    A whole number is a number, too, and so are those of NumPy; a list will do for a tuple. NaN is no number. What is
    annotated as a text or a number, as budgets are, is left to its reader, which says more about it.

    Args:
        function: whose annotations are read, once.
        given: its arguments by name, as ``locals()`` has them there.
        but: arguments whose own readers say more about what is wrong.
        briefly: arguments with thousands of entries, of which the first one alone is looked at.

    Raises:
        ArgumentError: naming the first argument that does not fit, with what it is and what is taken.

    >>> def wait(seconds: Seconds, names: list[str] | None = None) -> None:
    ...     require_arguments(wait, locals())
    >>> wait(1)
    >>> wait(-1)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ArgumentError: wait does not take seconds=-1; it takes a number of seconds, at least 0
    >>> wait(1, ["a", 5])
    Traceback (most recent call last):
        ...
    remat_explorer.errors.ArgumentError: wait does not take names[1]=5; it takes a text
    """
    for name, hint in _hints(function).items():
        if name not in given or name in but:
            continue
        argument = given[name]
        if name in briefly and isinstance(argument, list | tuple):
            argument = argument[:1]
        if (misfit := _misfit(argument, hint, name)) is not None:
            place, entry, wanted = misfit
            raise ArgumentError(
                f"{function.__qualname__.removesuffix('.__init__')} does not take {place}={shown(entry)}; "
                f"it takes {_in_words(wanted)}"
            )


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Type hints of arguments; one that names what is imported for type checkers alone stays a text."""
    hints: dict[str, Any] = {}
    for name, hint in function.__annotations__.items():
        try:
            one = SimpleNamespace(__annotations__={name: hint})
            hints |= get_type_hints(one, function.__globals__, include_extras=True)
        except NameError:
            hints[name] = hint
    hints.pop("return", None)
    return hints


def _misfit(entry: Any, hint: Any, place: str) -> Misfit | None:
    """Where an entry does not fit a type hint; None if it does."""
    if hint is Any or hint is object:
        return None
    if isinstance(hint, str):
        names = {"NoneType" if name.strip() == "None" else name.strip() for name in hint.split("|")}
        return None if names & {parent.__name__ for parent in type(entry).__mro__} else (place, entry, hint)
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        misfit = _misfit(entry, inside[0], place)
        outside = misfit is None and any(isinstance(part, Within) and entry not in part for part in inside[1:])
        return (place, entry, hint) if outside or misfit is not None else None
    if origin in (Union, UnionType):
        read = {str, int, float} & {*inside}
        if str in read and len(read) > 1 and isinstance(entry, (*read, int)):
            return None
        misfits = [_misfit(entry, part, place) for part in inside]
        inner = [misfit for misfit in misfits if misfit is not None and misfit[0] != place]
        return None if None in misfits else inner[0] if inner else (place, entry, hint)
    kind = origin or hint
    if not _is_of(entry, kind, inside):
        return place, entry, hint
    for where, part, wanted in _parts(entry, kind, inside):
        if (misfit := _misfit(part, wanted, f"{place}{where}")) is not None:
            return misfit
    return None


def _is_of(entry: Any, kind: Any, inside: tuple[Any, ...]) -> bool:
    """Whether an entry is of a kind, whatever it holds."""
    if kind is Literal:
        return entry in inside
    if kind is None:
        return entry is None
    if kind is bool:
        return isinstance(entry, bool | np.bool_)
    if kind is int:
        return isinstance(entry, Integral) and not isinstance(entry, bool)
    if kind is float:
        return isinstance(entry, Real) and not isinstance(entry, bool) and not math.isnan(entry)
    if kind is Path:
        return isinstance(entry, os.PathLike)
    if kind is collections.abc.Callable:
        return callable(entry)
    if kind in (tuple, list, collections.abc.Sequence, collections.abc.Collection, collections.abc.Iterable):
        if isinstance(entry, str | bytes | Mapping):
            return False
        if kind is tuple and inside and Ellipsis not in inside and isinstance(entry, tuple | list):
            return len(entry) == len(inside)
        many = isinstance(entry, np.ndarray | collections.abc.Sequence)
        return many or (kind in (collections.abc.Collection, collections.abc.Iterable) and isinstance(entry, kind))
    return not isinstance(kind, type) or kind is np.ndarray or isinstance(entry, kind)


def _parts(entry: Any, kind: Any, inside: tuple[Any, ...]) -> Iterator[tuple[str, Any, Any]]:
    """What an entry holds: where, what, and what that should be. Iterators stay as they are."""
    if not inside or not isinstance(entry, Collection | np.ndarray):
        return
    if isinstance(entry, Mapping):
        for key, part in entry.items():
            yield f"[{shown(key)}]", key, inside[0]
            yield f"[{shown(key)}]", part, inside[-1]
    elif isinstance(kind, type) and issubclass(kind, Iterable):
        each = inside if kind is tuple and Ellipsis not in inside else None
        for i, part in enumerate(entry):
            yield f"[{i}]", part, inside[0] if each is None else each[i]


def _in_words(hint: Any) -> str:
    """What a type hint asks for, as a person says it."""
    if isinstance(hint, str):
        return f"a {hint}".replace(" | ", " or ")
    origin, inside = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin is Annotated:
        return _in_words(inside[0]) + "".join(str(part) for part in inside[1:] if isinstance(part, Within))
    if origin is Literal:
        return " or ".join(map(repr, inside))
    if origin in (Union, UnionType):
        *first, last = dict.fromkeys(map(_in_words, inside))
        return f"{', '.join(first)} or {last}" if first else last
    kind = origin or hint
    if kind is collections.abc.Callable:
        return "a function"
    if kind is tuple and inside and Ellipsis not in inside:
        return f"{len(inside)} of them, each {' and '.join(dict.fromkeys(map(_in_words, inside)))}"
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a dictionary"
    if isinstance(kind, type) and issubclass(kind, Iterable) and kind.__module__ in ("builtins", "collections.abc"):
        return f"several, each {_in_words(inside[0])}" if inside and inside[0] is not Any else "a tuple or a list"
    name = getattr(kind, "__name__", str(kind))
    return _WORDS.get(name, f"a {name}")
