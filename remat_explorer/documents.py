"""JSON files that people exchange: strict keys, matrices as digits, errors that quote the entry, atomic writes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from remat_explorer.errors import RematError


def quote(entry: object, limit: int = 160) -> str:
    """``entry`` as JSON on one line, cut to ``limit`` characters.

    >>> quote({"name": "conv", "bytes": -1})
    '{"name": "conv", "bytes": -1}'
    """
    text = json.dumps(entry, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def require_keys(entry: Any, keys: Collection[str], where: str, error: type[RematError]) -> dict[str, Any]:
    """``entry`` itself, if it is a JSON object with exactly ``keys``.

    Raises:
        error: naming the first missing or unknown key, and quoting the entry.
    """
    if not isinstance(entry, dict):
        raise error(f"{where} is not a JSON object: {quote(entry)}")
    for key in keys:
        if key not in entry:
            raise error(f"{where} lacks the key {key!r}: {quote(entry)}")
    for key in entry:
        if key not in keys:
            raise error(f"{where} has the unknown key {key!r}: {quote(entry)}; known are {', '.join(keys)}")
    return entry


def require_format(entry: dict[str, Any], name: str, version: int, error: type[RematError]) -> None:
    """Refuse a file of another format or version by name."""
    if entry["format"] != name:
        raise error(f"the format is {entry['format']!r}; expected {name!r}")
    if entry["version"] != version:
        raise error(f"version {entry['version']!r} of {name!r} is not readable here; expected version {version}")


def pack_rows(matrix: np.ndarray) -> list[str]:
    """A matrix of digits as one string per row, as R and S stand in files and messages.

    >>> pack_rows(np.array([[0, 2], [1, 0]]))
    ['02', '10']
    """
    digits = matrix.astype(np.uint8) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def unpack_rows(rows: Any, name: str, error: type[RematError]) -> np.ndarray:
    """The matrix of `pack_rows`, uint8 of shape (rows, digits).

    Raises:
        error: if ``rows`` is not a list of equally long strings of digits.
    """
    if not isinstance(rows, list) or not all(isinstance(row, str) and row.isascii() for row in rows):
        raise error(f"{name} is not a list of rows of digits: {quote(rows)}")
    digits = np.frombuffer("".join(rows).encode("ascii"), dtype=np.uint8) - np.uint8(ord("0"))
    if (digits > 9).any():  # what comes before "0" wraps around to the top
        raise error(f"{name} is not a list of rows of digits: {quote(rows)}")
    if len({len(row) for row in rows}) != 1:
        raise error(f"the rows of {name} differ in length")
    return digits.reshape(len(rows), len(rows[0]))


def read_json(path: str | Path, error: type[RematError]) -> Any:
    """The parsed content of a JSON file.

    Raises:
        error: if the file cannot be opened, or where it stops being JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"cannot read {str(path)!r}: {problem.strerror}") from None
    except ValueError as problem:
        raise error(f"{str(path)!r} is not a JSON file: {problem}") from None


def write_text(path: str | Path, text: str) -> Path:
    """Write a file atomically: readers see the old content or the new, never half of it.

    Raises:
        OSError: if the folder does not exist or cannot be written.
    """
    return write_bytes(path, text.encode())


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a file atomically, as `write_text` does.

    Raises:
        OSError: if the folder does not exist or cannot be written.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
