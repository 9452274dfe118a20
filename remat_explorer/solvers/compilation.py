"""How the planner's functions are compiled, and where the machine code is kept.

numba counts references to arrays whenever one is taken out of a tuple, with atomic instructions that take longer than
the work of a flip. Functions that allocate nothing need no counting; numba's option for that begins with an underscore,
so it is named here alone. Results are the same with it and without.

numba notices a change of the file of a function that it has compiled, but not of the files of the functions that this
one calls. So the folder of the machine code is named after the contents of all of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
from numba import config, njit

SOURCES = (
    *("flat_graph", "compiled_state", "neighbourhood", "shortage", "walk"),
    *("flips", "account", "moves", "annealing", "compilation"),
)

OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False}
WITHOUT_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # faster to compile
CACHE_DIR = "CACHE_DIR"  # numba's name for NUMBA_CACHE_DIR in its configuration

counting_nothing = njit(**OPTIONS, **WITHOUT_WRAPPERS)
"""Decorator of functions that compiled code calls; they write into what they are given and allocate nothing."""


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of functions that Python calls: compiled at the first call, then read from disk.

    Where no folder can be written, every process compiles anew.
    """
    before = getattr(config, CACHE_DIR)
    setattr(config, CACHE_DIR, str(folder()))
    try:
        return njit(**OPTIONS, cache=True)(function)
    except (RuntimeError, OSError):
        return njit(**OPTIONS)(function)
    finally:
        setattr(config, CACHE_DIR, before)


def folder() -> Path:
    """Where machine code is kept: the folder in NUMBA_CACHE_DIR or REMAT_EXPLORER_CACHE, or the user's cache folder."""
    here = Path(__file__).parent
    contents = hashlib.sha256(b"".join((here / f"{name}.py").read_bytes() for name in SOURCES)).hexdigest()
    chosen = getattr(config, CACHE_DIR) or os.environ.get("REMAT_EXPLORER_CACHE")
    parent = Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("remat_explorer"))
    return parent / "compiled" / contents[:16]


def warm_up() -> None:
    """Compile everything now, or read it from disk, so that the first search need not wait.

    >>> warm_up()
    """
    from remat_explorer.instances import linear
    from remat_explorer.solvers.condensed import Condensed
    from remat_explorer.solvers.planner import plan_schedule

    plan_schedule(Condensed.of(linear(2)), 3)
