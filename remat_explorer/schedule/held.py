"""Memory in use along a schedule, equations (2) and (3) of Checkmate (Jain et al., MLSys 2020), section 4.4."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_explorer.graph import Graph
from remat_explorer.schedule.runs import Computations, Retained, RetainedInto


class Held(NamedTuple):
    """Bytes in use, resident bytes included; they change only where something is computed.

    Attributes:
        start: when each stage begins, int64 of shape (stages,).
        during: while each computation runs, outputs and workspace included, int64 of shape (computations,).
        after: once it is done and what nobody needs is freed, int64 of shape (computations,).
    """

    start: np.ndarray
    during: np.ndarray
    after: np.ndarray


def held_bytes(graph: Graph, stages: int, computations: Computations, retained: Retained) -> Held:
    """Memory along the computations of a schedule."""
    bytes_of, persistent = graph.value_bytes.tolist(), graph.persistent.tolist()
    rows, into = computations.rows(), RetainedInto(retained, len(bytes_of))
    start = retained.stage_bytes(graph, stages) + graph.resident_bytes
    there = RetainedInto(retained, len(bytes_of))
    last_reader = {(t, v): k for t, k, code in rows for v in graph.inputs(k, code)}
    during, after = list[int](), list[int]()
    stage, held = -1, 0
    for t, k, code in rows:
        if t != stage:
            stage, held = t, int(start[t])
        way = graph.operations[k].implementations[code - 1]
        held += sum(bytes_of[v] for v in way.outputs)
        during.append(held + way.workspace)
        dead = [
            v
            for v in (*way.inputs, *way.outputs)
            if not persistent[v] and last_reader.get((t, v), k) <= k and not into(v, t + 1)
        ]
        again = [v for v in way.outputs if persistent[v] and there(v, t)]  # the first version stays
        if way.overwrites in dead and graph.heir(k, code) not in again:
            during[-1] -= bytes_of[way.overwrites]
        held -= sum(bytes_of[v] for v in dead) + sum(bytes_of[v] for v in again)
        after.append(held)
    return Held(start, np.array(during, dtype=np.int64), np.array(after, dtype=np.int64))


def memory_matrix(operations: int, computations: Computations, held: Held) -> np.ndarray:
    """U, int64 of shape (stages, operations): ``during`` where an operation runs, elsewhere what is held there."""
    levels, lengths = _levels(operations, computations, held)
    return np.repeat(levels, lengths).reshape(len(held.start), operations)


def memory_peak(operations: int, computations: Computations, held: Held) -> int:
    """The largest entry of U, bytes."""
    levels, lengths = _levels(operations, computations, held)
    return int(levels[lengths > 0].max())


def memory_before(computations: Computations, held: Held) -> np.ndarray:
    """The entry of U before that of each computation, its own where it is a stage's first, int64 (computations,)."""
    stage, operation, _ = computations
    follows = np.append(False, stage[1:] == stage[:-1])
    last, after = np.roll(held.during, 1), np.roll(held.after, 1)
    next_to = follows & (operation == np.roll(operation, 1) + 1)
    before = np.where(next_to, last, np.where(follows, after, held.start[stage]))
    return np.where(operation == 0, held.during, before)


def _levels(operations: int, computations: Computations, held: Held) -> tuple[np.ndarray, np.ndarray]:
    """U row by row as bytes, and for how many operations in a row each holds, which may be none.

    A stage begins with what it retains. Then each computation takes its own entry, and what is left after it those
    up to the next one.
    """
    stages, runs = len(held.start), len(computations.stage)
    begin = np.searchsorted(computations.stage, np.arange(stages))  # the first computation of each stage
    place = 2 * np.arange(runs) + computations.stage + 1  # of `during`: one start and two levels for each before it
    opening = 2 * begin + np.arange(stages)
    levels = np.empty(2 * runs + stages, dtype=np.int64)
    levels[opening], levels[place], levels[place + 1] = held.start, held.during, held.after
    begins = np.empty(2 * runs + stages + 1, dtype=np.int64)  # where each level begins in U, row by row
    cell = computations.stage * operations + computations.operation
    begins[opening], begins[place], begins[place + 1] = np.arange(stages) * operations, cell, cell + 1
    begins[-1] = stages * operations
    return levels, np.diff(begins)
