"""The arrays that compiled code works on: all its memory is allocated here, before it is called.

A condensed graph is flat: lists of lists become one array of entries and one of starts, so the inputs of operation k
are ``inputs[input_start[k]:input_start[k + 1]]``. Groups are numbered in the order of their producers, so the outputs
of operation k are the groups from ``output_start[k]`` up to ``output_start[k + 1]``.

In the exact search, a set of g groups is a row of 64-bit words; group v is bit v % 64 of word v // 64. Pages of its
table of states that no state reaches are never touched.
"""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from remat_explorer.solvers.condensed_graph import CondensedGraph

LARGE = 1 << 22  # bytes, from which NumPy asks Linux for pages of 2 MiB
AGAIN, LOGGED, STALE, BETTER = 0, 1, 2, 3  # entries of FlipState.numbers


class WalkState(NamedTuple):
    """What a walk knows of each group, and the operations that the present stage runs."""

    live: np.ndarray  # whether the group is in memory
    locked: np.ndarray  # whether an operation that this stage still runs reads it
    unread: np.ndarray  # how many of those operations there are
    next_read: np.ndarray  # stage of the next first run that reads it, n + 1 where there is none
    next_use: np.ndarray  # the same, for evicted values' sake included
    for_descendant: np.ndarray  # whether it is of use only if a value computed from it is evicted
    running: np.ndarray  # operations of the stage, ascending
    waiting: np.ndarray  # candidates for eviction
    weight: np.ndarray  # the part of their scores that an eviction does not change
    stack: np.ndarray  # scratch space, as are the next three
    marked: np.ndarray  # False wherever nobody is using it, as the next two
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
    """Connected sets of operations that would have to run again, with the cost of each set."""

    parent: np.ndarray  # of each operation in the union-find, itself at a root, -1 outside
    ring: np.ndarray  # the next member of the same neighbourhood
    cost: np.ndarray  # cost of the neighbourhood, at its root
    evicted: np.ndarray  # whether each group is evicted and not in memory again
    logarithm: np.ndarray  # of the cost of having each group again if it were evicted now
    stale: np.ndarray  # whether that logarithm must be computed anew

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
    """Zeros that take memory only near what is written, in pages of a few KiB where the system has such."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGE or sys.platform != "linux":
        return np.zeros(shape, dtype=dtype)
    space = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without large pages
        space.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(space, dtype=dtype).reshape(shape)


class FlipState(NamedTuple):
    """A schedule of n operations and g groups of values."""

    runs: np.ndarray  # R transposed: whether operation k runs in stage t, at [k, t], uint8 of shape (n, n)
    kept: np.ndarray  # S transposed: whether group v is retained into stage t, at [v, t], uint8 of shape (g, n + 1)
    reads: np.ndarray  # how many operations of stage t read group v, at [v, t], int16 of shape (g, n)
    running: np.ndarray  # operations of each stage, ascending, of shape (n, n)
    count: np.ndarray  # how many there are, of shape (n,)
    start: np.ndarray  # bytes in memory when a stage begins, of shape (n,)
    peak: np.ndarray  # most bytes in memory in a stage, of shape (n,)
    is_stale: np.ndarray  # whether ``peak`` must be computed anew, of shape (n,)
    stale: np.ndarray  # the stages of which that is so, of shape (n,)
    again: np.ndarray  # recomputations as t * n + k, in no order, of shape (n * n,)
    place: np.ndarray  # where in ``again`` each is, counted from 1, 0 where there is none, of shape (n * n,)
    log: np.ndarray  # flips since the last decision, as t * n + k
    best: np.ndarray  # recomputations of the best schedule within the budget, as in ``again``
    unread: np.ndarray  # scratch space, 0 for every group
    numbers: np.ndarray  # how many entries ``again``, ``log``, ``stale`` and ``best`` have
    cost: np.ndarray  # of the recomputations, of shape (1,)

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


class FlatGraph(NamedTuple):
    """n operations and g groups of values; bytes are int64, indices int32."""

    input_start: np.ndarray
    inputs: np.ndarray  # groups that each operation reads, ascending, from ``input_start`` on
    output_start: np.ndarray  # first group that each operation writes, of shape (n + 1,)
    reader_start: np.ndarray
    readers: np.ndarray  # operations that read each group, ascending, from ``reader_start`` on
    producer: np.ndarray  # of shape (g,)
    bytes: np.ndarray  # M, of shape (g,)
    size: np.ndarray  # natural logarithm of M, float64 of shape (g,)
    needed: np.ndarray  # bytes of the groups that an operation writes and its transient bytes, of shape (n,)
    base: np.ndarray  # bytes that are there all through a stage, of shape (n,)
    overwritten: np.ndarray  # the group that an operation may overwrite, or -1, of shape (n,)
    credit: np.ndarray  # bytes that it saves by that, of shape (n,)
    costs: np.ndarray  # C, float64 of shape (n,)
    clock: np.ndarray  # when each stage begins, as a share of the whole run, float64 of shape (n + 1,)

    @staticmethod
    def of(condensed: CondensedGraph) -> FlatGraph:
        """Flatten ``condensed``, once."""
        if condensed not in _known:
            _known[condensed] = FlatGraph._made_of(condensed)
        return _known[condensed]

    @staticmethod
    def _made_of(condensed: CondensedGraph) -> FlatGraph:
        n = condensed.n
        input_start, inputs = _flat(condensed.inputs)
        reader_start, readers = _flat(condensed.readers)
        # the clock mixes the number of operations and their cost, so that neither free nor dear operations dominate
        share = np.append(0.0, np.cumsum(condensed.costs) / (condensed.graph.total_cost or 1.0))
        return FlatGraph(
            input_start,
            inputs,
            _flat(condensed.outputs)[0],
            reader_start,
            readers,
            condensed.producer.astype(np.int32),
            condensed.bytes.astype(np.int64),
            np.log(np.maximum(condensed.bytes, 1).astype(np.float64)),
            (condensed.output_bytes + condensed.transient).astype(np.int64),
            condensed.base.astype(np.int64),
            condensed.overwritten.astype(np.int32),
            condensed.credit.astype(np.int64),
            condensed.costs.astype(np.float64),
            0.5 * np.arange(n + 1) / n + 0.5 * share,
        )


_known: WeakKeyDictionary[CondensedGraph, FlatGraph] = WeakKeyDictionary()


def _flat(lists: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and entries of a list of lists."""
    starts = np.append(0, np.cumsum([len(entries) for entries in lists], dtype=np.int64))
    return starts.astype(np.int32), np.array([entry for entries in lists for entry in entries], dtype=np.int32)


BITS = 64
DEPTH = 20  # bits of a state's key that tell stage and position
MOST_STAGES = 1000


class Sets(NamedTuple):
    """What is the same in every state, filled by `exact_order.fill`; words are int64 of shape (..., words)."""

    reads: np.ndarray  # groups that each operation reads, (n, words)
    writes: np.ndarray  # groups that it writes, (n, words)
    awaited: np.ndarray  # groups made before stage t that the first run of an operation from t on reads, (n + 1, words)
    useful: np.ndarray  # groups produced before stage t that are worth having in stage t or later, (n + 1, words)
    saving: np.ndarray  # bytes that overwriting saves in a run again; 0 where a persistent output's first version stays
    largest: np.ndarray  # groups, largest first, of shape (g,)
    detour: np.ndarray  # cost of the runs again for whose sake a group is useful, of shape (g,)
    spare: np.ndarray  # groups in memory at a moment, first run t, for later first runs alone, (n, words)
    excess: np.ndarray  # bytes beyond the budget if all of them are, of shape (n,)
    moment_cost: np.ndarray  # what evicting until a moment costs at least, of shape (n,)
    moment: np.ndarray  # the moment from stage t on of which that is most, of shape (n,)
    share: np.ndarray  # part of its producer's cost that a group stands for, of shape (g,)
    cheapest: np.ndarray  # groups by share for each byte, of shape (g,)
    scratch: np.ndarray  # sets that an expansion works on, (ROWS, words)
    candidates: np.ndarray  # groups that may be evicted
    chosen: np.ndarray  # places of those that are
    remaining: np.ndarray  # bytes of the candidates from a place on, of shape (g + 1,)

    @staticmethod
    def empty(condensed: CondensedGraph) -> Sets:
        """Space for the sets of ``condensed``."""
        n, groups = condensed.n, condensed.groups
        words = max(1, -(-groups // BITS))
        graph = condensed.graph
        stays = np.array([any(graph.persistent[v] for v in node.default.outputs) for node in graph.operations])
        whole = np.maximum(condensed.output_bytes[condensed.producer], 1)
        share = condensed.costs[condensed.producer] * condensed.bytes / whole
        return Sets(
            reads=np.zeros((n, words), dtype=np.int64),
            writes=np.zeros((n, words), dtype=np.int64),
            awaited=np.zeros((n + 1, words), dtype=np.int64),
            useful=np.zeros((n + 1, words), dtype=np.int64),
            saving=np.where(stays, 0, condensed.credit).astype(np.int64),
            largest=np.argsort(-condensed.bytes, kind="stable").astype(np.int32),
            detour=np.zeros(groups),
            spare=np.zeros((n, words), dtype=np.int64),
            excess=np.zeros(n, dtype=np.int64),
            moment_cost=np.zeros(n),
            moment=np.zeros(n, dtype=np.int32),
            share=share,
            cheapest=np.argsort(share / np.maximum(condensed.bytes, 1), kind="stable").astype(np.int32),
            scratch=np.zeros((ROWS, words), dtype=np.int64),
            candidates=np.zeros(groups + 1, dtype=np.int32),
            chosen=np.zeros(groups + 1, dtype=np.int32),
            remaining=np.zeros(groups + 1, dtype=np.int64),
        )


WANTED, HELD, LOCKED, AFTER = 0, 1, 2, 3  # rows of ``scratch``
ROWS = 4


class States(NamedTuple):
    """States that the search has reached, and those that wait to be expanded; s is the most there can be."""

    stage: np.ndarray  # where a state is, of shape (s,)
    position: np.ndarray  # it may run operations from here on, of shape (s,)
    memory: np.ndarray  # what is in memory, (s, words)
    paid: np.ndarray  # cost of the recomputations so far, of shape (s,)
    parent: np.ndarray  # the state before, of shape (s,)
    operation: np.ndarray  # what was run in it, of shape (s,)
    expanded: np.ndarray  # whether it has been since it was last reached at less cost, of shape (s,)
    table: np.ndarray  # numbers of states by hash, from 1 on, 0 where there is none; a power of two, at least 2 s
    keys: np.ndarray  # a heap of states by key, with ``waiting``
    waiting: np.ndarray  # a state that is reached at less cost is there twice, (2 s,)
    counts: np.ndarray  # entries `STATES` to `PAUSE`, of shape (COUNTS,); the goal is 0 where there is none
    limits: np.ndarray  # cost of recomputations from which a state is of no use, and unit of the keys; float64

    @staticmethod
    def empty(most: int, words: int) -> States:
        """Space for ``most`` states."""
        slots = 1 << max(4, (2 * most - 1).bit_length())
        return States(
            stage=np.empty(most, dtype=np.int32),
            position=np.empty(most, dtype=np.int32),
            memory=np.empty((most, words), dtype=np.int64),
            paid=np.empty(most),
            parent=np.empty(most, dtype=np.int32),
            operation=np.empty(most, dtype=np.int32),
            expanded=np.zeros(most, dtype=np.bool_),
            table=np.zeros(slots, dtype=np.int32),
            keys=np.empty(2 * most, dtype=np.int64),
            waiting=np.empty(2 * most, dtype=np.int32),
            counts=np.zeros(COUNTS, dtype=np.int64),
            limits=np.zeros(2),
        )


STATES, WAITING, WORK, MOST_WORK, GOAL, PAUSE, COUNTS = 0, 1, 2, 3, 4, 5, 6  # entries of ``counts``
LIMIT, UNIT = 0, 1  # entries of ``limits``
