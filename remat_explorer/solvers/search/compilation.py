"""How the planner's functions are compiled, and where the machine code is kept.

numba counts references to arrays whenever one is taken out of a tuple, with atomic instructions that take longer than
the work of a flip. Functions that allocate nothing need no counting; numba's option for that begins with an underscore,
so it is named here alone. Results are the same with it and without.

numba notices a change of the file of a function that it has compiled, but not of the files of the functions that this
one calls. So the folder of the machine code is named after the contents of all of them. It is named, too, after what
numba itself compares: its version, and the place and time of the files. So code that lies there is code that is used.

``python -m remat_explorer.solvers.search.compilation`` compiles ahead, about twenty seconds, unless that is done.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import platformdirs
from numba import config, njit

SOURCES = (
    *("flat_graph", "compiled_state", "neighbourhood", "shortage", "walk"),
    *("flips", "account", "moves", "annealing", "compilation"),
    *("exact_space", "exact_sets", "exact_bound", "exact_states", "exact_moves", "exact_order"),
    *("point_memory", "cut_paths"),
)
ENTRIES = (  # module and name of each function that Python calls
    *("walk.walk", "annealing.start", "annealing.anneal", "exact_order.search"),
    *("point_memory.fill_memory", "cut_paths.shortest_paths"),
)
COMPILING = "compiling the search (once on a machine)"

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
    files = [here / f"{name}.py" for name in SOURCES]
    compared = numba.__version__, sys.implementation.cache_tag, str(here), [path.stat().st_mtime for path in files]
    contents = hashlib.sha256(repr(compared).encode() + b"".join(path.read_bytes() for path in files)).hexdigest()
    chosen = getattr(config, CACHE_DIR) or os.environ.get("REMAT_EXPLORER_CACHE")
    parent = Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("remat_explorer"))
    return parent / "compiled" / contents[:16]


def is_compiled() -> bool:
    """Whether a search begins without compiling: in this process it has, or the folder holds what it needs.

    The folder is looked at, not read, so code for another processor counts, too.
    """
    if _search_once.cache_info().currsize > 0:
        return True
    return {path.name.split("-")[0] for path in folder().glob("*/*.nbc")}.issuperset(ENTRIES)


def warm_up(tell: Callable[[str], None] | None = None) -> None:
    """Compile everything now, or read it from disk, so that no search need wait; at once from the second call on.

    Args:
        tell: called with `COMPILING` where nothing is compiled yet, and this takes longer than a moment.

    >>> warm_up()
    >>> is_compiled()
    True
    """
    if tell is not None and not is_compiled():
        tell(COMPILING)
    _search_once()


@cache
def _search_once() -> None:
    from remat_explorer.instances import linear
    from remat_explorer.solvers.condensed import Condensed
    from remat_explorer.solvers.search.cut_paths import shortest_paths
    from remat_explorer.solvers.search.exact_search import search_exactly
    from remat_explorer.solvers.search.flat_graph import FlatGraph
    from remat_explorer.solvers.search.local_search import LocalSearch
    from remat_explorer.solvers.search.point_memory import fill_memory

    condensed = Condensed.of(linear(2))
    flat, n, groups = FlatGraph.of(condensed), condensed.n, condensed.groups
    LocalSearch(condensed, 3).run(1)
    R, S, stages = np.eye(n), np.zeros((n, groups)), np.arange(n)
    fill_memory(flat, R, S, np.ones(n, dtype=bool), stages, condensed.base, 1, np.empty(groups), np.empty((n, n)))
    cost, through = np.zeros((n, n)), np.zeros((n, n), dtype=np.int32)
    ends = np.zeros(groups, dtype=np.int64)
    shortest_paths(flat, R, S, np.zeros((n + 1, n)), stages, 0, n, cost, through, np.empty(groups), ends)
    search_exactly(condensed, 3)


if __name__ == "__main__":
    warm_up(print)
