"""Profiles on disk, one JSON file for each key, so that the same graph on the same machine is measured once.

A cache must not be able to fail: a file that cannot be read, or does not hold what its key asks for, counts as none,
and a folder that cannot be written is left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from dataclasses import dataclass

from remat_explorer.cache_folder import cache_folder, entry_path
from remat_explorer.capture.profiling.profile_key import Key
from remat_explorer.documents import quote, read_json, require_format, require_keys, write_text
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph

FORMAT, VERSION = "remat-explorer/profile", 2  # another version too when operations run or are metered otherwise
_PROFILE = ("format", "version", "key", "seconds", "workspace")


@dataclass(frozen=True)
class Profile:
    """Measured numbers of the implementations of a graph's operations, in their order.

    Attributes:
        seconds: above 0; a cost of 0 would let a solver repeat an operation for nothing.
        workspace: bytes that are needed only while the operation runs.

    Raises:
        RematError: if a number is impossible, or the two differ in length.

    >>> Profile((0.5,), (-1,))
    Traceback (most recent call last):
        ...
    remat_explorer.errors.RematError: a workspace of -1; expected bytes of at least 0
    """

    seconds: tuple[float, ...]
    workspace: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.seconds) != len(self.workspace):
            raise RematError(f"{len(self.seconds)} times, but {len(self.workspace)} workspaces")
        for time in self.seconds:
            if not isinstance(time, float) or not math.isfinite(time) or time <= 0:
                raise RematError(f"a time of {quote(time)}; expected seconds above 0")
        for size in self.workspace:
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise RematError(f"a workspace of {quote(size)}; expected bytes of at least 0")

    def of(self, graph: Graph) -> Graph:
        """``graph`` with these numbers in place of its own."""
        ways = [way for node in graph.operations for way in node.implementations]
        numbers = zip(ways, self.seconds, self.workspace, strict=True)
        measured = iter([dataclasses.replace(way, cost=cost, workspace=size) for way, cost, size in numbers])
        operations = tuple(
            dataclasses.replace(node, implementations=tuple(next(measured) for _ in node.implementations))
            for node in graph.operations
        )
        return dataclasses.replace(graph, operations=operations)


def load_profile(key: Key, implementations: int) -> Profile | None:
    """The profile of that key, or None if there is none that can be trusted.

    Args:
        key: as `profile_key` gives it.
        implementations: how many the graph has, over all operations.
    """
    try:
        document = require_keys(read_json(entry_path("profile", key), RematError), _PROFILE, "the profile", RematError)
        require_format(document, FORMAT, VERSION, RematError)
        profile = Profile(tuple(document["seconds"]), tuple(document["workspace"]))
    except (RematError, TypeError):
        return None
    return profile if document["key"] == key and len(profile.seconds) == implementations else None


def store_profile(key: Key, profile: Profile) -> None:
    """Write the profile atomically, or not at all."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "key": key,
        "seconds": profile.seconds,
        "workspace": profile.workspace,
    }
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_text(entry_path("profile", key), json.dumps(document, separators=(",", ":")) + "\n")
