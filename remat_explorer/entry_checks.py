"""Entries of files and arguments that must be numbers, texts or lists: one reader of each for every format."""

from __future__ import annotations

import sys
from typing import Any

from remat_explorer.documents import quote
from remat_explorer.errors import RematError
from remat_explorer.quantities import MOST_BYTES, format_bytes


def require_bytes(entry: Any, where: str, error: type[RematError]) -> int:
    """``entry`` itself, if it is a whole number from 0 to `MOST_BYTES`.

    Args:
        entry: what stands there.
        where: what it is, as a message names it: "the budget of point 3".

    Raises:
        error: quoting it.

    >>> require_bytes(4096, "the budget", RematError)
    4096
    """
    if isinstance(entry, bool) or not isinstance(entry, int) or entry < 0:
        raise error(f"{where} is not a number of bytes: {quote(entry)}; expected a whole number of at least 0")
    if entry > MOST_BYTES:
        raise error(
            f"{where} is {quote(entry)} bytes, more than {format_bytes(MOST_BYTES)}, the largest supported number"
        )
    return entry


def require_number(entry: Any, where: str, error: type[RematError], least: float = 0.0) -> float:
    """``entry`` itself, if it is a finite number of at least ``least``, neither too large nor too small for a float.

    Raises:
        error: quoting it.

    >>> require_number(0.5, "the time", RematError)
    0.5
    >>> require_number(float("nan"), "the time", RematError)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.RematError: the time is not a number of at least 0: NaN
    """
    finite = isinstance(entry, int | float) and not isinstance(entry, bool) and least <= entry <= sys.float_info.max
    if not finite:
        raise error(f"{where} is not a number of at least {least:g}: {quote(entry)}")
    return entry


def require_text(entry: Any, where: str, error: type[RematError]) -> str:
    """``entry`` itself, if it is a string that every file and terminal can hold: one without lone surrogates.

    Raises:
        error: quoting it.

    >>> require_text("größe", "the name", RematError)
    'größe'
    >>> require_text(chr(0xD800), "the name", RematError)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.RematError: the name holds half of a surrogate pair, which is no text: "\\ud800"
    """
    if not isinstance(entry, str):
        raise error(f"{where} is not a string: {quote(entry)}")
    if not entry.isascii():
        try:
            entry.encode()
        except UnicodeEncodeError:
            raise error(f"{where} holds half of a surrogate pair, which is no text: {quote(entry)}") from None
    return entry


def require_list(entry: Any, where: str, error: type[RematError]) -> list[Any]:
    """``entry`` itself, if it is a list.

    Raises:
        error: quoting it.
    """
    if not isinstance(entry, list):
        raise error(f"{where} is not a list: {quote(entry)}")
    return entry
