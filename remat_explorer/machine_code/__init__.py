"""How the functions of the searches are compiled, and where the machine code is kept.

numba counts references to arrays whenever one is taken out of a tuple, with atomic instructions that take longer than
the work of a flip. Functions that allocate nothing need no counting; numba's option for that begins with an underscore,
so it is named here alone. Results are the same with it and without.

numba notices a change of the file of a function that it has compiled, but not of the files of the functions that this
one calls. All of them lie in the folders of `SOURCES`, so the folder of the machine code is named after the contents of
every file there. It is named, too, after what numba itself compares: its version, and the place and time of the files.
So code that lies there is code that is used.

numba runs what it finds there, so a folder that another user owns or can write is left alone, and every process
compiles anew. Nor may the folder be able to fail: what is damaged there is compiled again, and what it has no room for
is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import platformdirs
from numba import config, njit

PACKAGE = Path(__file__).parents[1]
FOLDERS = "solvers/search", "solvers/chain_checkpointing", "solvers/chain_reversal", "offsets"  # of compiled code
SOURCES = tuple(PACKAGE / folder for folder in FOLDERS)
OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}
WITHOUT_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # faster to compile
CACHE_DIR = "CACHE_DIR"  # numba's name for NUMBA_CACHE_DIR in its configuration

counting_nothing = njit(**OPTIONS, **WITHOUT_WRAPPERS)
"""Decorator of functions that compiled code calls; they write into what they are given and allocate nothing."""


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of functions that Python calls: compiled at the first call, then read from disk.

    Where no folder can be written, or others can write it, every process compiles anew.
    """
    if not is_own(folder()):
        return njit(**OPTIONS)(function)
    before = getattr(config, CACHE_DIR)
    setattr(config, CACHE_DIR, str(folder()))
    try:
        compiled: Any = njit(**OPTIONS, cache=True)(function)
        _never_fail(compiled._cache)
        return compiled
    except (RuntimeError, OSError):
        return njit(**OPTIONS)(function)
    finally:
        setattr(config, CACHE_DIR, before)


def _never_fail(cache: Any) -> None:
    """Have numba compile what it cannot read, which is then forgotten, and go on where it cannot write."""
    load, save = cache.load_overload, cache.save_overload

    def load_if_whole(*args: Any) -> Any:
        try:
            return load(*args)
        except Exception:  # whatever reading half a file raises
            with contextlib.suppress(Exception):
                cache.flush()
            return None

    def save_if_possible(*args: Any) -> None:
        with contextlib.suppress(Exception):  # a full disk, or an index that is damaged and cannot be replaced
            save(*args)

    cache.load_overload, cache.save_overload = load_if_whole, save_if_possible


def is_own(place: Path) -> bool:
    """Whether nobody but this user and the system can put anything into a folder, which need not be there yet.

    >>> is_own(Path("/proc/1/nowhere"))
    True
    """
    if not hasattr(os, "geteuid"):
        return True  # where folders of users are their own
    for part in (place, place.parent):  # the second one is made by us, too
        try:
            state = part.stat()
            states = [state, *(file.stat() for file in part.glob("*/*"))] if part == place else [state]
        except OSError:
            continue  # not there, or not readable: then nothing is run from there
        if any(one.st_uid not in (os.geteuid(), 0) for one in states) or state.st_mode & stat.S_IWOTH:
            return False
    return True


def entries() -> frozenset[str]:
    """Module and name of each function with that decorator, as the files of machine code begin.

    >>> "walk.walk" in entries()
    True
    """
    functions = {path.stem: re.findall(r"^@entry\ndef (\w+)", path.read_text(), re.MULTILINE) for path in _sources()}
    return frozenset(f"{module}.{name}" for module, names in functions.items() for name in names)


def folder() -> Path:
    """Where machine code is kept: the folder in NUMBA_CACHE_DIR or REMAT_EXPLORER_CACHE, or the user's cache folder."""
    files = _sources()
    times = [(path.name, path.stat().st_mtime) for path in files]
    compared = numba.__version__, sys.implementation.cache_tag, str(PACKAGE), times
    contents = hashlib.sha256(repr(compared).encode() + b"".join(path.read_bytes() for path in files)).hexdigest()
    # not numba's own setting, which a file .numba_config.yaml of the working directory can give: code is run from there
    chosen = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("REMAT_EXPLORER_CACHE")
    parent = Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("remat_explorer"))
    return parent / "compiled" / contents[:16]


def _sources() -> list[Path]:
    return sorted(path for folder in SOURCES for path in folder.glob("*.py"))
