"""Profiles on disk, one JSON file for each key, so that the same graph on the same machine is measured once.

A cache must not be able to fail: a file that cannot be read, or does not hold what its key asks for, counts as none,
and a folder that cannot be written is left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from remat_explorer.cache_folder import cache_folder, entry_path
from remat_explorer.capture.profiling.profile_key import Key
from remat_explorer.documents import quote, read_json, require_format, require_keys, write_json
from remat_explorer.entry_checks import require_bytes, require_list
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph

FORMAT, VERSION = "remat-explorer/profile", 3  # another version too when operations run or are metered otherwise
_PROFILE = ("format", "version", "key", "seconds", "workspace", "overwrites", "values", "resident")


@dataclass(frozen=True)
class Profile:
    """Measured numbers of the implementations of a graph's operations, in their order.

    Attributes:
        seconds: above 0; a cost of 0 would let a solver repeat an operation for nothing.
        workspace: bytes that are needed only while the operation runs.
        overwrites: whether an output takes over the storage that the implementation overwrites.
        values: bytes of the values, in their order.
        resident: bytes that are there before the first operation.

    Raises:
        RematError: if a number is impossible, or the first three differ in length.

    >>> Profile((0.5,), (-1,), (False,), (4,), 0)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.RematError: a workspace is not a number of bytes: -1; expected a whole number of at least 0
    """

    seconds: tuple[float, ...]
    workspace: tuple[int, ...]
    overwrites: tuple[bool, ...]
    values: tuple[int, ...]
    resident: int

    def __post_init__(self) -> None:
        if not len(self.seconds) == len(self.workspace) == len(self.overwrites):
            raise RematError(f"{len(self.seconds)} times, but {len(self.workspace)} workspaces")
        for time in self.seconds:
            if not isinstance(time, float) or not math.isfinite(time) or time <= 0:
                raise RematError(f"a time of {quote(time)}; expected seconds above 0")
        for size in self.workspace:
            require_bytes(size, "a workspace", RematError)
        for size in (*self.values, self.resident):
            require_bytes(size, "a storage", RematError)
        for overwritten in self.overwrites:
            if not isinstance(overwritten, bool):
                raise RematError(f"{quote(overwritten)} for what is overwritten; expected true or false")

    def of(self, graph: Graph) -> Graph:
        """``graph`` with these numbers in place of its own; it keeps its structure, by which schedules know it."""
        ways = [way for node in graph.operations for way in node.implementations]
        numbers = zip(ways, self.seconds, self.workspace, self.overwrites, strict=True)
        measured = iter(
            [
                dataclasses.replace(
                    way,
                    cost=cost,
                    workspace=size,
                    overwrites=way.overwrites if over else None,
                    in_place=way.in_place and over,
                )
                for way, cost, size, over in numbers
            ]
        )
        operations = tuple(
            dataclasses.replace(node, implementations=tuple(next(measured) for _ in node.implementations))
            for node in graph.operations
        )
        values = tuple(
            dataclasses.replace(value, bytes=size) for value, size in zip(graph.values, self.values, strict=True)
        )
        contents = {"values": values, "operations": operations, "resident_bytes": self.resident}
        profiled = dataclasses.replace(graph, **contents, captured_structure=None)
        if profiled.structure == graph.structure:
            return profiled
        return dataclasses.replace(profiled, captured_structure=graph.structure)


def the_most_of(profiles: Sequence[Profile]) -> Profile:
    """The largest numbers of several profiles of one graph, such as those of several processes.

    An output takes over a storage where it does so in all.

    >>> the_most_of([Profile((0.5,), (1,), (True,), (4,), 0), Profile((0.2,), (3,), (False,), (4,), 8)])
    Profile(seconds=(0.5,), workspace=(3,), overwrites=(False,), values=(4,), resident=8)
    """
    seconds, workspace, values = (
        tuple(map(max, zip(*(getattr(one, name) for one in profiles), strict=True)))
        for name in ("seconds", "workspace", "values")
    )
    overwrites = tuple(map(all, zip(*(one.overwrites for one in profiles), strict=True)))
    return Profile(seconds, workspace, overwrites, values, max(one.resident for one in profiles))


def load_profile(key: Key, implementations: int, values: int) -> Profile | None:
    """The profile of that key, or None if there is none that can be trusted.

    Args:
        key: as `profile_key` gives it.
        implementations: how many the graph has, over all operations.
        values: how many it has.
    """
    try:
        document = require_keys(read_json(entry_path("profile", key), RematError), _PROFILE, "the profile", RematError)
        require_format(document, FORMAT, VERSION, RematError)
        names = ("seconds", "workspace", "overwrites", "values")
        lists = (tuple(require_list(document[name], name, RematError)) for name in names)
        profile = Profile(*lists, resident=document["resident"])
    except RematError:
        return None
    fitting = (len(profile.seconds), len(profile.values)) == (implementations, values)
    return profile if document["key"] == key and fitting else None


def store_profile(key: Key, profile: Profile) -> None:
    """Write the profile atomically, or not at all."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "key": key,
        "seconds": profile.seconds,
        "workspace": profile.workspace,
        "overwrites": profile.overwrites,
        "values": profile.values,
        "resident": profile.resident,
    }
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(entry_path("profile", key), document)
