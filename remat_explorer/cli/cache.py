"""`remat-explorer cache`: what is kept from earlier solves and profiles, and how to be rid of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat_explorer.cache_folder import CacheEntry, cache_folder, clear, entries
from remat_explorer.cli.output import DONE, put, table
from remat_explorer.documents import read_json
from remat_explorer.errors import RematError, SolutionError
from remat_explorer.quantities import format_bytes, format_seconds

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def cache(options: argparse.Namespace) -> int:
    """List or clear the cache folder, all of it or one of `CACHED`."""
    kinds = [options.kind] if options.kind else list(CACHED)
    return _clear(options, kinds) if options.action == "clear" else _list(options, kinds)


def _list(options: argparse.Namespace, kinds: list[str]) -> int:
    document: dict[str, Any] = {"folder": str(cache_folder())}
    parts, total = [], 0
    for kind in kinds:
        stored = entries(CACHED[kind].name)
        described = [_described(CACHED[kind], entry) for entry in stored]
        document[kind] = described
        total += sum(entry.bytes for entry in stored)
        if described:
            parts.append(_table(CACHED[kind], described))
    counted = _listing([_count(len(document[kind]), kind) for kind in kinds])
    parts.append(f"{counted}, {format_bytes(total)} in {cache_folder()}")
    put(options, document, "\n\n".join(parts))
    return DONE


def _clear(options: argparse.Namespace, kinds: list[str]) -> int:
    removed = {kind: clear(CACHED[kind].name) for kind in kinds}
    size = sum(entry.bytes for gone in removed.values() for entry in gone)
    counted = _listing([_count(len(gone), kind) for kind, gone in removed.items()])
    left = sum(len(entries(CACHED[kind].name)) for kind in kinds)
    stayed = f"; {left} could not be removed" if left else ""
    document = {"folder": str(cache_folder()), "bytes": size, **{kind: len(gone) for kind, gone in removed.items()}}
    put(options, document, f"removed {counted}, {format_bytes(size)}, from {cache_folder()}{stayed}")
    return DONE


def _described(kind: Cached, entry: CacheEntry) -> dict[str, Any]:
    about: dict[str, Any] = {"path": str(entry.path), "bytes": entry.bytes, "used": entry.used}
    try:
        return about | kind.read(entry)
    except (RematError, AttributeError, KeyError, TypeError, ValueError):
        return about | {"unreadable": True}


def _of_solution(entry: CacheEntry) -> dict[str, Any]:
    from remat_explorer.solvers.cache import describe_entry

    return describe_entry(entry.path)


def _of_profile(entry: CacheEntry) -> dict[str, Any]:
    document = read_json(entry.path, SolutionError)
    key = document["key"]
    device = f"{key['device']}, {key.get('gpu') or key['processor']}"
    return {"graph": str(key["graph"]), "device": device, "operations": len(document["seconds"])}


def _of_convolution(entry: CacheEntry) -> dict[str, Any]:
    document = read_json(entry.path, SolutionError)
    problem = document["key"]["problem"]
    source, weight, _ = ("x".join(map(str, sizes)) for sizes in problem["sizes"])
    about = f"{problem['part']} of {source} by {weight}, {problem['dtype']}"
    return {"convolution": about, "device": str(document["key"]["device"]), "algorithms": len(document["plans"])}


def _of_look(entry: CacheEntry) -> dict[str, Any]:
    document = read_json(entry.path, SolutionError)
    key, points = document["key"], document["curve"]["points"]
    return {"model": str(key["model"]), "batch": key["batch"], "schedules": len(points)}


def _table(kind: Cached, described: list[dict[str, Any]]) -> str:
    nothing = ("(unreadable)", *[""] * (len(kind.heads) - 1))
    rows: list[tuple[str, ...]] = [(*kind.heads, "size", "used")]
    for about in described:
        cells = nothing if "unreadable" in about else kind.cells(about)
        rows.append((*cells, format_bytes(about["bytes"]), _age(about["used"])))
    return table(rows, f"{kind.alignment}><")


def _cells_of_solution(about: dict[str, Any]) -> tuple[str, ...]:
    limit, budget = format_seconds(about["time_limit"]), format_bytes(about["budget"])
    return about["graph"], about["strategy"], budget, about["status"], limit


def _cells_of_profile(about: dict[str, Any]) -> tuple[str, ...]:
    return f"{about['graph'][:12]}…", str(about["operations"]), about["device"]


def _cells_of_look(about: dict[str, Any]) -> tuple[str, ...]:
    return about["model"], str(about["batch"]), str(about["schedules"])


def _cells_of_convolution(about: dict[str, Any]) -> tuple[str, ...]:
    return about["convolution"], str(about["algorithms"]), about["device"]


@dataclass(frozen=True)
class Cached:
    """What is kept of one kind, and how it is listed.

    Attributes:
        name: in the cache folder.
        heads: of the table's own columns, which come before size and age.
        alignment: of the same.
        read: what a file says, or an error that says it is unreadable.
        cells: the own columns of a row.
    """

    name: str
    heads: tuple[str, ...]
    alignment: str
    read: Callable[[CacheEntry], dict[str, Any]]
    cells: Callable[[dict[str, Any]], tuple[str, ...]]


CACHED = {
    "solutions": Cached(
        "solution",
        ("solutions of", "strategy", "budget", "status", "time limit"),
        "<<><>",
        _of_solution,
        _cells_of_solution,
    ),
    "profiles": Cached("profile", ("profiles of graph", "operations", "device"), "<><", _of_profile, _cells_of_profile),
    "convolutions": Cached(
        "cudnn", ("algorithms of cuDNN for", "number", "device"), "<><", _of_convolution, _cells_of_convolution
    ),
    "looks": Cached("look", ("explorer's looks at", "batch", "schedules"), "<>>", _of_look, _cells_of_look),
}


def _listing(counts: list[str]) -> str:
    """Counts in a row.

    >>> _listing(["1 solution"]), _listing(["1 solution", "2 profiles", "0 convolutions"])
    ('1 solution', '1 solution, 2 profiles and 0 convolutions')
    """
    return " and ".join(filter(None, [", ".join(counts[:-1]), counts[-1]]))


def _age(since: float) -> str:
    seconds = max(0.0, time.time() - since)
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{_count(int(seconds // size), f'{unit}s')} ago"
    return "now"


def _count(number: int, things: str) -> str:
    """A number of things, in the singular where there is one.

    >>> _count(1, "profiles"), _count(0, "profiles")
    ('1 profile', '0 profiles')
    """
    return f"{number} {things[:-1] if number == 1 else things}"
