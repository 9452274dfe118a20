"""Which backward operations belong to which copy of a block of the forward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby

import numpy as np

from remat_explorer.graph.neighbourhood import Neighbourhood

MOST = 12  # operations between two copies of which each is tried as the first one of a copy


def backward_rows(near: Neighbourhood, forward: np.ndarray) -> Iterator[list[list[int]]]:
    """The backward operations of each copy, in every way to tell where one ends and the next one begins.

    An operation belongs to the copy that the last one of the forward values that it reads belongs to: the copy that
    writes the value, or the one that reads it last. Those that read gradients alone, or beside them only what was there
    before the first copy, belong where their neighbours do; of those between two copies, some join the copy before,
    and the others the one after.

    Args:
        near: the graph.
        forward: operations of the forward pass, int of shape (copies, places).

    Yields:
        Operations of each copy, ascending.
    """
    copies = np.full(near.graph.n, -1)
    copies[forward] = np.arange(len(forward))[:, None]
    copy = copies.tolist()
    for ends in (near.written_at, _read_at(near, copy)):
        known: list[tuple[int, int | None]] = []
        for k in np.flatnonzero(near.graph.is_backward).tolist():
            read = [ends[edge.value] for edge in near.inputs[k] if ends[edge.value] >= forward[0, 0]]
            known.append((k, copy[max(read)] if read else None))
        runs = [(owner, [k for k, _ in run]) for owner, run in groupby(known, key=lambda entry: entry[1])]
        gaps = [len(run) for i, (owner, run) in enumerate(runs) if owner is None and _is_between(runs, i)]
        usual = Counter(gaps).most_common(1)[0][0] if gaps else 0
        for first in range(usual + 1) if usual <= MOST else (0, usual):
            yield _trimmed(near, _rows(runs, len(forward), first, usual - first))


def _read_at(near: Neighbourhood, copy: list[int]) -> list[int]:
    """The operation that reads each forward value last, of those in the copy that writes it and in the next one.

    What is written outside counts where it is written, unless one copy alone reads it.
    """
    ends = list(near.written_at)
    for v, k in enumerate(near.written_at):
        readers = near.forward_readers[v] if k >= 0 else []
        if k >= 0 and copy[k] < 0 and len({copy[reader] for reader in readers}) != 1:
            continue
        ends[v] = max([k, *(reader for reader in readers if copy[k] < 0 or copy[reader] in (copy[k], copy[k] + 1))])
    return ends


def _neighbours(runs: list[tuple[int | None, list[int]]], i: int) -> tuple[int, int]:
    """The copies before and after a run that belongs to none by itself, -1 for what is outside."""
    before = runs[i - 1][0] if i > 0 else -1
    after = runs[i + 1][0] if i + 1 < len(runs) else -1
    return -1 if before is None else before, -1 if after is None else after


def _is_between(runs: list[tuple[int | None, list[int]]], i: int) -> bool:
    before, after = _neighbours(runs, i)
    return before != after and before >= 0 and after >= 0


def _rows(runs: list[tuple[int | None, list[int]]], copies: int, first: int, last: int) -> list[list[int]]:
    """Where ``first`` operations between two copies join the one before, and ``last`` the one after."""
    rows: list[list[int]] = [[] for _ in range(copies)]
    for i, (owner, run) in enumerate(runs):
        if owner is not None:
            if owner >= 0:
                rows[owner] += run
            continue
        before, after = _neighbours(runs, i)
        if before == after and before >= 0:
            rows[before] += run
            continue
        taken = 0
        if before >= 0:
            rows[before] += run[:first]
            taken = min(first, len(run))
        if after >= 0:
            rows[after] += run[max(taken, len(run) - last) :]
    return rows


def _trimmed(near: Neighbourhood, rows: list[list[int]]) -> list[list[int]]:
    """Rows without what one of them alone has at an end: what follows the last block reads its values, too."""
    kinds = [tuple(near.kinds[k] for k in row) for row in rows]
    usual, _ = Counter(kinds).most_common(1)[0]
    size = len(usual)
    for row, own in zip(rows, kinds, strict=True):
        places = [at for at in (0, len(own) - size) if len(own) > size and own[at : at + size] == usual]
        if places:
            row[:] = row[places[-1] : places[-1] + size]
    return rows
