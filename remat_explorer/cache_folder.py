"""The folder of what need not be computed twice, a JSON file each.

It has profiles, solutions, timed algorithms of cuDNN, and what the explorer showed of a model.

A cache must not be able to fail: whoever reads counts a file that does not hold what its key asks for as none, and
whoever writes goes on without one where the folder cannot be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENVIRONMENT = "REMAT_EXPLORER_CACHE"
FOLDERS = ("profile", "solution", "cudnn", "look")
ABANDONED = 3600.0  # seconds after which nobody still writes to a file that is not finished


@dataclass(frozen=True)
class CacheEntry:
    """One file of the cache."""

    kind: str  # one of `FOLDERS`
    path: Path
    bytes: int
    used: float  # when it was written or last read, in seconds since 1970


def cache_folder() -> Path:
    """The folder: the environment variable `REMAT_EXPLORER_CACHE`, or the user's cache folder."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("remat_explorer")).absolute()


def entry_path(kind: str, key: Mapping[str, Any]) -> Path:
    """Where the entry of a key lies, whether it is there or not; those with the same "graph" are found together."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
    return cache_folder() / f"{kind}-{_about(key['graph']) if 'graph' in key else ''}{digest[:24]}.json"


def paths_about(kind: str, graph: str) -> list[Path]:
    """Where all entries of a kind lie whose keys have this "graph"; files of others may be among them."""
    return _listed(f"{kind}-{_about(graph)}*.json")


def _about(graph: Any) -> str:
    return hashlib.sha256(str(graph).encode()).hexdigest()[:8]


def entries(*kinds: str) -> list[CacheEntry]:
    """What the cache holds of these kinds, or of all, the last used first; nothing where it cannot be read."""
    files = []
    for kind in kinds or FOLDERS:
        for path in _listed(f"{kind}-*.json"):
            with contextlib.suppress(OSError):  # removed by another process in between
                state = path.stat()
                files.append(CacheEntry(kind, path, state.st_size, state.st_mtime))
    return sorted(files, key=lambda entry: entry.used, reverse=True)


def remove(entry: CacheEntry) -> bool:
    """Remove one file; returns whether that was possible."""
    try:
        entry.path.unlink()
    except OSError:
        return False
    return True


def evict(kind: str, most: int) -> None:
    """Remove the longest unused entries of a kind until the others take no more than `most` bytes.

    What seems to be used in the future, before a clock was set back, goes first. What writes left behind that were
    interrupted long ago, by the end of their process, goes with it.
    """
    total, now = 0, time.time()
    for path in _unfinished(*FOLDERS):
        with contextlib.suppress(OSError):
            if abs(now - path.stat().st_mtime) > ABANDONED:
                path.unlink()
    for entry in sorted(entries(kind), key=lambda entry: entry.used > now + ABANDONED):
        total += entry.bytes
        if total > most:
            remove(entry)


def used_now(kind: str, key: Mapping[str, Any]) -> None:
    """Note that an entry was read: what nobody asks for is evicted first."""
    with contextlib.suppress(OSError):
        os.utime(entry_path(kind, key))


def clear(*kinds: str) -> list[CacheEntry]:
    """Remove everything of these kinds, or of all, and return what was removed.

    Files that someone else put into the folder stay. What an interrupted write left behind goes, too.
    """
    removed = [entry for entry in entries(*kinds) if remove(entry)]
    for path in _unfinished(*(kinds or FOLDERS)):
        with contextlib.suppress(OSError):
            path.unlink()
    return removed


def _unfinished(*kinds: str) -> list[Path]:
    return [path for kind in kinds for path in _listed(f".{kind}-*.json.*")]


def _listed(pattern: str) -> list[Path]:
    try:
        return list(cache_folder().glob(pattern))
    except OSError:
        return []
