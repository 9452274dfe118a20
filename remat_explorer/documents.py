"""JSON files that people exchange: strict keys, matrices as digits, errors that quote the entry, atomic writes."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from remat_explorer.errors import FileError, RematError, shown
from remat_explorer.files import read_regular, replacing

_ENCODER = json.JSONEncoder(default=str)


def quote(entry: object, limit: int = 160) -> str:
    """``entry`` as JSON on one line, cut to ``limit`` characters."""
    text = ""
    try:
        for part in _ENCODER.iterencode(entry):  # no more of a large entry than is shown
            text += part if len(part) <= limit else part[: limit + 1]
            if len(text) > limit:
                return text[: limit - 1] + "…"
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, numbers without end
        return shown(entry, limit)
    return text


def require_keys(entry: Any, keys: Collection[str], where: str, error: type[RematError]) -> dict[str, Any]:
    """``entry`` itself, if it is a JSON object with exactly ``keys``."""
    if not isinstance(entry, dict):
        raise error(f"{where} is not a JSON object: {quote(entry)}")
    for key in keys:
        if key not in entry:
            raise error(f"{where} lacks the key {key!r}: {quote(entry)}")
    for key in entry:
        if key not in keys:
            raise error(f"{where} has the unknown key {shown(key)}: {quote(entry)}; known are {', '.join(keys)}")
    return entry


def require_format(entry: Any, name: str, version: int, error: type[RematError]) -> None:
    """Refuse a file of another format or version. To be asked first: nothing is quoted of a file that is not ours."""
    if not isinstance(entry, dict):
        raise error(f"the file is not a JSON object, as a file of the format {name!r} is")
    if "format" not in entry:
        raise error(f"the file lacks the key 'format'; expected {name!r}")
    if entry["format"] != name:
        ours = isinstance(entry["format"], str) and entry["format"].startswith("remat-explorer/")
        raise error(f"the format is {shown(entry['format']) if ours else 'none of ours'}; expected {name!r}")
    if entry.get("version", version) != version or isinstance(entry.get("version"), bool):
        raise error(f"version {shown(entry['version'])} of {name!r} is not readable here; expected version {version}")


def pack_rows(matrix: np.ndarray) -> list[str]:
    """A matrix of digits as one string per row, as R and S stand in files and messages.

    >>> pack_rows(np.array([[0, 2], [1, 0]]))
    ['02', '10']
    """
    digits = matrix.astype(np.uint8) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def unpack_rows(rows: Any, name: str, error: type[RematError]) -> np.ndarray:
    """The matrix of `pack_rows`, uint8 of shape (rows, digits)."""
    if not isinstance(rows, list) or not all(isinstance(row, str) and row.isascii() for row in rows):
        raise error(f"{name} is not a list of rows of digits: {quote(rows)}")
    digits = np.frombuffer("".join(rows).encode("ascii"), dtype=np.uint8) - np.uint8(ord("0"))
    if (digits > 9).any():  # what comes before "0" wraps around to the top
        raise error(f"{name} is not a list of rows of digits: {quote(rows)}")
    if len({len(row) for row in rows}) != 1:
        raise error(f"the rows of {name} differ in length")
    return digits.reshape(len(rows), len(rows[0]))


def read_json(path: str | Path, error: type[RematError]) -> Any:
    """The parsed content of a JSON file."""
    try:
        return json.loads(read_regular(path), parse_constant=_refuse_constant)
    except FileError as problem:
        raise error(str(problem)) from None
    except RecursionError:
        raise error(f"{str(path)!r} is not read: its lists and objects are nested too deep") from None
    except ValueError as problem:
        raise error(f"{str(path)!r} is not a JSON file: {problem}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no number in JSON")


def to_json(document: Any) -> str:
    """A document as JSON text on one line. What is no finite number, which JSON cannot hold, is null."""
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(document), separators=(",", ":"), allow_nan=False)


def _finite(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {key: _finite(part) for key, part in entry.items()}
    if isinstance(entry, list | tuple):
        return [_finite(part) for part in entry]
    return None if isinstance(entry, float) and not math.isfinite(entry) else entry


def write_json(path: str | Path, document: Any) -> Path:
    """Write a JSON file atomically."""
    return write_text(path, to_json(document) + "\n")


def write_text(path: str | Path, text: str) -> Path:
    """Write a file atomically: readers see the old content or the new, never half of it."""
    return write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str | Path, content: bytes) -> Path:
    """Write a file atomically, as `write_text` does. A link stays, and the file that it points to is written."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return Path(path)
