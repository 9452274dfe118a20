"""R and S of section 4.2 of Checkmate (Jain et al., MLSys 2020) without their zeros, and what follows from them.

R is kept as the list of its ones. S is kept as runs: a value that is retained stays for many stages, and only the
first and the last of them are written down. Both grow with what a schedule does, not with the square of its operations.

What follows: whether they are a schedule, memory in use by equations (2) and (3), section 4.4, and the least that a
list of computations retains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from remat_explorer.graph import Graph


class Computations(NamedTuple):
    """What is computed, ascending by stage, then by operation; no pair of these occurs twice.

    Attributes:
        stage, operation: int64.
        implementation: 1 to 9, uint8.

    >>> Computations.of_matrix(np.eye(2)).rows()
    [(0, 0, 1), (1, 1, 1)]
    """

    stage: np.ndarray
    operation: np.ndarray
    implementation: np.ndarray

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int]]) -> Computations:
        """From (stage, operation, implementation) in any order."""
        columns = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
        return Computations(columns[:, 0], columns[:, 1], columns[:, 2].astype(np.uint8))

    @staticmethod
    def of_matrix(R: np.ndarray) -> Computations:
        """From R of shape (stages, operations)."""
        stage, operation = np.nonzero(R)
        return Computations(stage, operation, R[stage, operation].astype(np.uint8))

    def matrix(self, stages: int, operations: int) -> np.ndarray:
        """R, uint8 of shape (stages, operations)."""
        R = np.zeros((stages, operations), dtype=np.uint8)
        R[self.stage, self.operation] = self.implementation
        return R

    def are_first(self) -> np.ndarray:
        """Which of them is the first of its operation, bool of shape (computations,)."""
        first = np.zeros(len(self.stage), dtype=bool)
        first[np.unique(self.operation, return_index=True)[1]] = True
        return first

    def counts(self, operations: int) -> np.ndarray:
        """How often each operation is computed, int64 of shape (operations,)."""
        return np.bincount(self.operation, minlength=operations)

    def rows(self) -> list[tuple[int, int, int]]:
        """As (stage, operation, implementation), in order."""
        return list(zip(self.stage.tolist(), self.operation.tolist(), self.implementation.tolist(), strict=True))


class Retained(NamedTuple):
    """Runs of stages into which a value is retained, ascending by value and stage; runs of a value do not touch.

    Attributes:
        value: int64.
        first, last: stages, both included, int64.

    >>> Retained.of_matrix(np.array([[0, 0], [1, 0], [1, 1]], dtype=bool)).rows()
    [(0, 1, 2), (1, 2, 2)]
    """

    value: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(rows: Iterable[tuple[int, int, int]]) -> Retained:
        """From (value, first stage, last stage) in any order, which do not touch."""
        columns = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
        return Retained(columns[:, 0], columns[:, 1], columns[:, 2])

    @staticmethod
    def of_matrix(S: np.ndarray) -> Retained:
        """From S, bool of shape (stages, values)."""
        padded = np.zeros((S.shape[1], len(S) + 2), dtype=np.int8)
        padded[:, 1:-1] = S.T
        change = np.diff(padded, axis=1)
        value, first = np.nonzero(change > 0)
        return Retained(value, first, np.nonzero(change < 0)[1] - 1)

    def matrix(self, stages: int, values: int) -> np.ndarray:
        """S, bool of shape (stages, values)."""
        columns = np.zeros((values, stages), dtype=bool)
        for v, first, last in self.rows():
            columns[v, first : last + 1] = True
        return np.ascontiguousarray(columns.T)

    def changes(self, stages: int) -> tuple[np.ndarray, np.ndarray]:
        """Where S differs from its row before, as stage and value, int64, ascending by stage."""
        stage = np.concatenate([self.first, self.last + 1])
        order = np.argsort(stage, kind="stable")[: np.count_nonzero(stage < stages)]
        return stage[order], np.concatenate([self.value, self.value])[order]

    def rows(self) -> list[tuple[int, int, int]]:
        """As (value, first stage, last stage), in order."""
        return list(zip(self.value.tolist(), self.first.tolist(), self.last.tolist(), strict=True))

    def stage_bytes(self, graph: Graph, stages: int) -> np.ndarray:
        """Bytes retained into each stage, resident bytes not included, int64 of shape (stages,)."""
        change = np.zeros(stages + 1, dtype=np.int64)
        np.add.at(change, self.first, graph.value_bytes[self.value])
        np.subtract.at(change, self.last + 1, graph.value_bytes[self.value])
        return np.cumsum(change)[:-1]


def row_lists(rows: int, row: np.ndarray, column: np.ndarray) -> bytes:
    """What each row of a matrix names: how many rows there are, how many columns each names, and these, row by row.

    Little-endian 32-bit numbers.
    """
    return np.concatenate([[rows], np.bincount(row, minlength=rows), column]).astype("<u4").tobytes()


class RetainedInto:
    """Whether a value is retained into a stage, asked for stages that never decrease."""

    def __init__(self, retained: Retained, values: int) -> None:
        self._next = np.searchsorted(retained.value, np.arange(values)).tolist()
        self._end = np.searchsorted(retained.value, np.arange(values), side="right").tolist()
        self._first, self._last = retained.first.tolist(), retained.last.tolist()

    def __call__(self, value: int, stage: int) -> bool:
        """S[stage, value]."""
        run, end = self._next[value], self._end[value]
        while run < end and self._last[run] < stage:
            run += 1
        self._next[value] = run
        return run < end and self._first[run] <= stage


def malformed(graph: Graph, stages: int, computations: Computations, retained: Retained) -> str | None:
    """What is no entry of R or run of S at all, in words, or None."""
    (stage, operation, code), (value, first, last) = computations, retained
    cells, n = stage * graph.n + operation, graph.n
    if ((stage < 0) | (stage >= stages) | (operation < 0) | (operation >= n)).any() or (np.diff(cells) <= 0).any():
        return f"computations must be ascending, in stages below {stages} and of operations below {n}"
    ways = np.array([len(node.implementations) for node in graph.operations])
    for i in np.flatnonzero((code < 1) | (code > ways[operation]))[:1]:
        return f"{graph.operations[operation[i]].name!r} has no implementation {code[i]}"
    outside = (value < 0) | (value >= len(graph.values)) | (first < 0) | (last < first) | (last >= stages)
    touching = (np.diff(value) < 0) | ((np.diff(value) == 0) & (first[1:] <= last[:-1] + 1))
    if outside.any() or touching.any():
        return f"runs of retained values must be ascending, apart, and in stages below {stages}"
    return None


def violation(graph: Graph, stages: int, computations: Computations, retained: Retained) -> str | None:
    """The first broken rule among (1b) to (1e), in words, or None.

    (1b) an operation's inputs are computed in its stage or retained into it; (1c) what is retained was there in the
    stage before; (1d) nothing is retained into the first stage; (1e) everything that must be computed is. Last, what
    may run in place only overwrites nothing that is read again.
    """
    rows, runs = computations.rows(), retained.rows()
    computed = {(t, v) for t, k, code in rows for v in graph.outputs(k, code)}
    violations: list[tuple[int, int, str]] = []  # stage, rule, message: the earliest is reported
    if early := [v for v, first, _ in runs if first == 0]:
        message = f"stage 0 starts with {graph.values[early[0]].name!r} in memory, but nothing has been computed yet"
        violations.append((0, 0, message))
    if unmade := [(first, v) for v, first, _ in runs if first and (first - 1, v) not in computed]:
        t, v = min(unmade)
        name = graph.values[v].name
        message = f"{name!r} is retained into stage {t}, but stage {t - 1} neither computes nor retains it"
        violations.append((t, 1, message))
    if dropped := _dropped(graph, stages, computed, retained):
        t, v = min(dropped)
        violations.append((t, 2, f"stage {t} drops the persistent value {graph.values[v].name!r}"))
    into = RetainedInto(retained, len(graph.values))
    for t, k, code in rows:
        missing = [v for v in graph.inputs(k, code) if (t, v) not in computed and not into(v, t)]
        if missing:
            message = (
                f"stage {t} computes {graph.operations[k].name!r} but its input "
                f"{graph.values[missing[0]].name!r} is neither computed nor retained"
            )
            violations.append((t, 3, message))
            break
    if violations:
        return min(violations)[2]
    return _never_computed(graph, computations, {v for _, v in computed}) or _out_of_place(graph, rows)


def _dropped(graph: Graph, stages: int, computed: set[tuple[int, int]], retained: Retained) -> list[tuple[int, int]]:
    """Stages into which a persistent value that was there in the stage before is not retained, and that value."""
    into = RetainedInto(retained, len(graph.values))
    there = [(t, v) for t, v in sorted(computed) if graph.persistent[v]]
    dropped = [(t + 1, v) for t, v in there if t + 1 < stages and not into(v, t + 1)]
    return dropped + [(last + 1, v) for v, _, last in retained.rows() if graph.persistent[v] and last + 1 < stages]


def _never_computed(graph: Graph, computations: Computations, made: set[int]) -> str | None:
    """(1e): persistent values, and every mandatory operation that no operation follows, must have run."""
    for v in np.flatnonzero(graph.persistent).tolist():
        if v not in made:
            return f"the persistent value {graph.values[v].name!r} is never computed"
    ran = set(computations.operation.tolist())
    for k in graph.mandatory.tolist():
        if k not in ran and not any(graph.readers[v] for v in graph.outputs(k)):
            return f"{graph.operations[k].name!r} is never computed"
    return None


def _out_of_place(graph: Graph, rows: list[tuple[int, int, int]]) -> str | None:
    """Where an implementation that may run in place only overwrites what is read again, in words, or None."""
    read_later = set[int]()
    for t, k, code in reversed(rows if graph.runs_in_place else ()):
        way = graph.operations[k].implementations[code - 1]
        if way.in_place and way.overwrites in read_later:
            return (
                f"stage {t} computes {graph.operations[k].name!r} with {way.name!r}, which may run in place only, "
                f"but {graph.values[way.overwrites].name!r} is read again later"
            )
        read_later.difference_update(way.outputs)
        read_later.update(way.inputs)
    return None


class Held(NamedTuple):
    """Bytes in use, resident bytes included; they change only where something is computed."""

    start: np.ndarray  # when each stage begins, int64 of shape (stages,)
    during: np.ndarray  # while each computation runs, outputs and workspace included, int64 of shape (computations,)
    after: np.ndarray  # once it is done and what nobody needs is freed, int64 of shape (computations,)


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


def leanest(graph: Graph, stages: int, computations: Computations) -> tuple[Computations, Retained]:
    """The computations that somebody reads, or that are the first, and S for them: each value only for a later read.

    From the last computation to the first, each value is known to be read later, and until which stage, or not. What
    is computed is retained from the next stage up to that one, so (1c) is tight. Persistent values are retained from
    their first computation to the end. A value that is read and never computed before is retained from stage 0 on,
    which `violation` reports.
    """
    rows, persistent = computations.rows(), graph.persistent.tolist()
    first = {k: t for t, k, _ in reversed(rows)}
    read_until: dict[int, int] = {}  # of values that a later computation reads, the last stage that does
    made: dict[int, int] = {}  # the first stage that computes each persistent value
    useful, runs = list[tuple[int, int, int]](), list[tuple[int, int, int]]()
    for t, k, code in reversed(rows):
        outputs, again = graph.outputs(k, code), first[k] != t
        wanted = any(v in read_until and not (again and persistent[v]) for v in outputs)
        if not wanted and (again or graph.operations[k].optional):
            continue
        useful.append((t, k, code))
        for v in outputs:
            last = read_until.pop(v, t)
            if persistent[v]:
                made[v] = t
            elif last > t:
                runs.append((v, t + 1, last))
        for v in graph.inputs(k, code):
            read_until.setdefault(v, t)
    runs += [(v, 0, last) for v, last in read_until.items() if not persistent[v]]
    runs += [(v, t + 1, stages - 1) for v, t in made.items() if t + 1 < stages]
    return Computations.of(useful), Retained.of(runs)
