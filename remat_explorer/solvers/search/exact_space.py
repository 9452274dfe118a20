"""The arrays of the exact search: sets of groups as bits, and a table of states.

A set of g groups is a row of 64-bit words; group v is bit v % 64 of word v // 64. All memory is allocated here, and
pages of it that no state reaches are never touched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_explorer.solvers.condensed import Condensed

BITS = 64
DEPTH = 20  # bits of a state's key that tell stage and position
MOST_STAGES = 1000


class Sets(NamedTuple):
    """What is the same in every state, filled by `exact_order.fill`; words are int64 of shape (..., words).

    Attributes:
        reads: groups that each operation reads, (n, words).
        writes: groups that it writes, (n, words).
        awaited: groups produced before stage t that the first run of an operation from t on reads, (n + 1, words).
        useful: groups produced before stage t that are worth having in stage t or later, (n + 1, words).
        saving: what overwriting saves in a run that is not the first, bytes of shape (n,): nothing where a persistent
            output's first version stays.
        largest: groups, largest first, of shape (g,).
        detour: cost of the runs again for whose sake a group is useful, of shape (g,).
        spare: groups that are in memory at a moment, the first run of operation t, for later first runs alone,
            (n, words).
        excess: bytes beyond the budget if all of them are, of shape (n,).
        moment_cost: what evicting until a moment costs at least, of shape (n,).
        moment: the moment from stage t on of which that is most, of shape (n,).
        share: part of its producer's cost that a group stands for, of shape (g,).
        cheapest: groups by share for each byte, of shape (g,).
        scratch: sets that an expansion works on, (ROWS, words).
        candidates, chosen, remaining: groups that may be evicted, places of those that are, and the bytes of the
            candidates from a place on, of shape (g + 1,).
    """

    reads: np.ndarray
    writes: np.ndarray
    awaited: np.ndarray
    useful: np.ndarray
    saving: np.ndarray
    largest: np.ndarray
    detour: np.ndarray
    spare: np.ndarray
    excess: np.ndarray
    moment_cost: np.ndarray
    moment: np.ndarray
    share: np.ndarray
    cheapest: np.ndarray
    scratch: np.ndarray
    candidates: np.ndarray
    chosen: np.ndarray
    remaining: np.ndarray

    @staticmethod
    def empty(condensed: Condensed) -> Sets:
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
    """States that the search has reached, and those that wait to be expanded; s is the most there can be.

    Attributes:
        stage, position: where a state is: it may run operations from ``position`` on, of shape (s,).
        memory: what is in memory, (s, words).
        paid: cost of the recomputations so far, of shape (s,).
        parent, operation: the state before, and the operation that was run in it, of shape (s,).
        expanded: whether the state has been expanded since it was last reached at less cost, of shape (s,).
        table: numbers of states by hash, from 1 on, 0 where there is none; a power of two, at least 2 s.
        keys, waiting: a heap of states by key; a state that is reached at less cost is there twice, (2 s,).
        counts: states, entries of the heap, work done so far, work allowed, number of the state that ends the
            cheapest schedule so far, 0 where there is none, and work after which to pause; of shape (COUNTS,).
        limits: cost of recomputations from which a state is of no use, which falls with every schedule that is found,
            and unit of the keys; float64 of shape (2,).
    """

    stage: np.ndarray
    position: np.ndarray
    memory: np.ndarray
    paid: np.ndarray
    parent: np.ndarray
    operation: np.ndarray
    expanded: np.ndarray
    table: np.ndarray
    keys: np.ndarray
    waiting: np.ndarray
    counts: np.ndarray
    limits: np.ndarray

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
