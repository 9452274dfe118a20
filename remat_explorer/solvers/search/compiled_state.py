"""The arrays that compiled code works on: all its memory is allocated here, before it is called."""

from __future__ import annotations

import math
import mmap
import sys
from contextlib import suppress
from typing import NamedTuple

import numpy as np

LARGE = 1 << 22  # bytes, from which NumPy asks Linux for pages of 2 MiB
AGAIN, LOGGED, STALE, BETTER = 0, 1, 2, 3  # entries of FlipState.numbers


class WalkState(NamedTuple):
    """What a walk knows of each group, and the operations that the present stage runs.

    Attributes:
        live: whether the group is in memory.
        locked: whether an operation that this stage still runs reads it.
        unread: how many of those operations there are.
        next_read: stage of the next first run that reads it, n + 1 where there is none.
        next_use: the same, for evicted values' sake included.
        for_descendant: whether it is of use only if a value computed from it is evicted.
        running: operations of the stage, ascending.
        waiting, weight: candidates for eviction, and the part of their scores that an eviction does not change.
        stack, marked, planned, refused: scratch space; the last three are False wherever nobody is using them.
    """

    live: np.ndarray
    locked: np.ndarray
    unread: np.ndarray
    next_read: np.ndarray
    next_use: np.ndarray
    for_descendant: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    weight: np.ndarray
    stack: np.ndarray
    marked: np.ndarray
    planned: np.ndarray
    refused: np.ndarray

    @staticmethod
    def empty(n: int, groups: int, reads: int) -> WalkState:
        """Space for n operations that read ``reads`` groups in all."""
        return WalkState(
            live=np.zeros(groups, dtype=np.bool_),
            locked=np.zeros(groups, dtype=np.bool_),
            unread=np.zeros(groups, dtype=np.int32),
            next_read=np.zeros(groups, dtype=np.int32),
            next_use=np.zeros(groups, dtype=np.int32),
            for_descendant=np.zeros(groups, dtype=np.bool_),
            running=np.zeros(n, dtype=np.int32),
            waiting=np.zeros(groups, dtype=np.int32),
            weight=np.zeros(groups),
            stack=np.zeros(reads + n + groups, dtype=np.int32),
            marked=np.zeros(n, dtype=np.bool_),
            planned=np.zeros(n, dtype=np.bool_),
            refused=np.zeros(groups, dtype=np.bool_),
        )


class Neighbourhoods(NamedTuple):
    """Connected sets of operations that would have to run again, with the cost of each set.

    Attributes:
        parent: of each operation in the union-find, itself at a root, -1 outside.
        ring: the next member of the same neighbourhood.
        cost: cost of the neighbourhood, at its root.
        evicted: whether each group is evicted and not in memory again.
        logarithm: of the cost of having each group again if it were evicted now.
        stale: whether that logarithm must be computed anew.
    """

    parent: np.ndarray
    ring: np.ndarray
    cost: np.ndarray
    evicted: np.ndarray
    logarithm: np.ndarray
    stale: np.ndarray

    @staticmethod
    def empty(n: int, groups: int) -> Neighbourhoods:
        """Space for neighbourhoods, to be cleared before a walk."""
        return Neighbourhoods(
            parent=np.zeros(n, dtype=np.int32),
            ring=np.zeros(n, dtype=np.int32),
            cost=np.zeros(n),
            evicted=np.zeros(groups, dtype=np.bool_),
            logarithm=np.zeros(groups),
            stale=np.zeros(groups, dtype=np.bool_),
        )


def sparse(shape: tuple[int, ...], dtype: type[np.generic]) -> np.ndarray:
    """Zeros that take memory only near what is written, in pages of a few KiB where the system has such.

    >>> sparse((2, 3), np.uint8).tolist()
    [[0, 0, 0], [0, 0, 0]]
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGE or sys.platform != "linux":
        return np.zeros(shape, dtype=dtype)
    space = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without large pages
        space.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(space, dtype=dtype).reshape(shape)


class FlipState(NamedTuple):
    """A schedule of n operations and g groups of values.

    Attributes:
        runs: R transposed: whether operation k runs in stage t, at [k, t], uint8 of shape (n, n).
        kept: S transposed: whether group v is retained into stage t, at [v, t], uint8 of shape (g, n + 1).
        reads: how many operations of stage t read group v, at [v, t], int16 of shape (g, n).
        running: operations of each stage, ascending, of shape (n, n).
        count: how many there are, of shape (n,).
        start: bytes in memory when a stage begins, of shape (n,).
        peak: most bytes in memory in a stage, of shape (n,).
        is_stale: whether ``peak`` must be computed anew, of shape (n,).
        stale: the stages of which that is so, of shape (n,).
        again: recomputations as t * n + k, in no order, of shape (n * n,).
        place: where in ``again`` each is, counted from 1, 0 where there is none, of shape (n * n,).
        log: flips since the last decision, as t * n + k.
        best: recomputations of the best schedule within the budget, as in ``again``.
        unread: scratch space, 0 for every group.
        numbers: how many entries ``again``, ``log``, ``stale`` and ``best`` have.
        cost: of the recomputations, of shape (1,).
    """

    runs: np.ndarray
    kept: np.ndarray
    reads: np.ndarray
    running: np.ndarray
    count: np.ndarray
    start: np.ndarray
    peak: np.ndarray
    is_stale: np.ndarray
    stale: np.ndarray
    again: np.ndarray
    place: np.ndarray
    log: np.ndarray
    best: np.ndarray
    unread: np.ndarray
    numbers: np.ndarray
    cost: np.ndarray

    @staticmethod
    def empty(n: int, groups: int) -> FlipState:
        """Space for a schedule, to be filled by `load`.

        It takes as much memory as schedules have ones, not n * n: `sparse`.
        """
        return FlipState(
            runs=sparse((n, n), np.uint8),
            kept=sparse((groups, n + 1), np.uint8),
            reads=sparse((groups, n), np.int16),
            running=sparse((n, n), np.int32),
            count=np.zeros(n, dtype=np.int64),
            start=np.zeros(n, dtype=np.int64),
            peak=np.zeros(n, dtype=np.int64),
            is_stale=np.zeros(n, dtype=np.bool_),
            stale=np.zeros(n, dtype=np.int32),
            again=sparse((n * n,), np.int32),
            place=sparse((n * n,), np.int32),
            log=sparse((n * n,), np.int32),
            best=sparse((n * n,), np.int32),
            unread=np.zeros(groups, dtype=np.int32),
            numbers=np.zeros(4, dtype=np.int64),
            cost=np.zeros(1),
        )
