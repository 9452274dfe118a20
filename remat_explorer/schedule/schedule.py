"""A schedule: what each stage computes (R) and what is kept into it (S), with cost and memory U.

Checkmate (Jain et al., MLSys 2020), sections 4.2 to 4.4, extended to operations with several outputs, workspace and
implementations, and to persistent values (parameter gradients, the loss), which are retained in every stage after
the one that first computes them. Memory in use is that of equations (2) and (3).

R and S are kept without their zeros: R as the list of its ones, S as runs: a value that is retained stays for many
stages, and only the first and the last of them are written down. Both grow with what a schedule does, not with the
square of its operations.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import cached_property, reduce
from typing import Any, NamedTuple

import numpy as np

from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.schedule.rules import malformed, violation


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

    Args:
        rows: of the matrix.
        row, column: what is named, ascending by row.

    >>> np.frombuffer(row_lists(3, np.array([0, 0, 2]), np.array([1, 4, 0])), "<u4").tolist()
    [3, 2, 0, 1, 1, 4, 0]
    """
    return np.concatenate([[rows], np.bincount(row, minlength=rows), column]).astype("<u4").tobytes()


class RetainedInto:
    """Whether a value is retained into a stage, asked for stages that never decrease.

    >>> into = RetainedInto(Retained.of([(0, 1, 2), (0, 5, 6)]), 1)
    >>> [into(0, t) for t in range(8)]
    [False, True, True, False, False, True, True, False]
    """

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


def leanest(graph: Graph, stages: int, computations: Computations) -> tuple[Computations, Retained]:
    """The computations that somebody reads, or that are the first, and S for them: each value only for a later read.

    From the last computation to the first, each value is known to be read later, and until which stage, or not. What
    is computed is retained from the next stage up to that one, so (1c) is tight. Persistent values are retained from
    their first computation to the end. A value that is read and never computed before is retained from stage 0 on,
    which `violation` reports.

    >>> from remat_explorer.instances import linear
    >>> keep, retained = leanest(linear(1), 3, Computations.of([(0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 2, 1)]))
    >>> keep.rows(), retained.rows()
    ([(0, 0, 1), (1, 0, 1), (1, 1, 1), (2, 2, 1)], [(0, 2, 2), (1, 2, 2)])
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


class Schedule:
    """R and S of one graph (section 4.2), kept as what is computed and runs of what is retained.

    ``R``, ``S``, ``U`` and ``computed`` are matrices that are made when somebody asks for them; what is needed of
    thousands of operations is ``computations``, ``retained`` and ``held``.

    Args:
        graph: the training graph, n operations and v values.
        R: (stages, n), 0 = not computed in this stage, k > 0 = computed with implementation k (1 to 9).
        S: (stages, v), whether the value is retained from stage t - 1 into stage t.

    Raises:
        ScheduleError: if a shape is wrong or an entry names an implementation that does not exist.

    >>> from remat_explorer.instances import linear
    >>> graph = linear(1)
    >>> keep = Schedule(graph, np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
    >>> keep.cost, keep.overhead, keep.violation()
    (3.0, 1.0, None)
    >>> keep.U[2].tolist()
    [2, 2, 3]
    """

    graph: Graph
    stages: int
    computations: Computations
    retained: Retained

    def __init__(self, graph: Graph, R: Any, S: Any) -> None:
        R, S = np.asarray(R), np.asarray(S)
        n, v = graph.n, len(graph.values)
        if R.ndim != 2 or R.shape[1] != n or S.shape != (len(R), v):
            raise ScheduleError(f"R has shape {R.shape} and S {S.shape}; expected (stages, {n}) and (stages, {v})")
        ways = np.array([len(node.implementations) for node in graph.operations])
        counted = R.size == 0 or (R.min() >= 0 and (R.max(axis=0) <= ways).all())
        if not counted or (S.dtype != bool and not np.isin(S, (0, 1)).all()):
            raise ScheduleError("R must hold 0 or the number of an implementation, and S 0 or 1")
        R, S = R.astype(np.uint8), S.astype(bool)
        self._take(graph, len(R), Computations.of_matrix(R), Retained.of_matrix(S))

    def _take(self, graph: Graph, stages: int, computations: Computations, retained: Retained) -> None:
        self.graph, self.stages, self.computations, self.retained = graph, stages, computations, retained
        for array in (*computations, *retained):
            array.flags.writeable = False

    @staticmethod
    def of_runs(graph: Graph, stages: int, computations: Computations, retained: Retained) -> Schedule:
        """A schedule from the ones of R and the runs of S, which are taken as they are.

        Raises:
            ScheduleError: if they are out of order, or name a stage, operation, implementation or value that does not
                exist.

        >>> from remat_explorer.instances import linear
        >>> rows = [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
        >>> Schedule.of_runs(linear(1), 3, Computations.of(rows), Retained.of([(0, 1, 2), (1, 2, 2)])).violation()
        """
        if complaint := malformed(graph, stages, computations, retained):
            raise ScheduleError(complaint)
        schedule = object.__new__(Schedule)
        schedule._take(graph, stages, computations, retained)
        return schedule

    @staticmethod
    def leanest(graph: Graph, stages: int, computations: Computations) -> Schedule:
        """The schedule of these computations that retains each value only for a later read, as `compact` does.

        Raises:
            ScheduleError: if they name a stage, operation or implementation that does not exist.

        >>> from remat_explorer.instances import linear
        >>> Schedule.leanest(linear(1), 3, Computations.of([(0, 0, 1), (1, 1, 1), (2, 2, 1)])).S.astype(int).tolist()
        [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
        """
        if complaint := malformed(graph, stages, computations, Retained.of([])):
            raise ScheduleError(complaint)
        return Schedule.of_runs(graph, stages, *leanest(graph, stages, computations))

    def on(self, graph: Graph) -> Schedule:
        """The same entries for another graph, such as one with other costs.

        Raises:
            ScheduleError: if it lacks an operation, implementation or value.
        """
        return Schedule.of_runs(graph, self.stages, self.computations, self.retained)

    def __getstate__(self) -> dict[str, Any]:
        """Without what can be made again."""
        return {name: self.__dict__[name] for name in ("graph", "stages", "computations", "retained")}

    @cached_property
    def R(self) -> np.ndarray:
        """What is computed and how, uint8 of shape (stages, n)."""
        return _read_only(self.computations.matrix(self.stages, self.graph.n))

    @cached_property
    def S(self) -> np.ndarray:
        """What is retained into each stage, bool of shape (stages, v)."""
        return _read_only(self.retained.matrix(self.stages, len(self.graph.values)))

    def implementations_in(self, stage: int) -> np.ndarray:
        """What a stage computes and how, a row of R: uint8 of shape (n,)."""
        first, last = np.searchsorted(self.computations.stage, (stage, stage + 1))
        row = np.zeros(self.graph.n, dtype=np.uint8)
        row[self.computations.operation[first:last]] = self.computations.implementation[first:last]
        return row

    def implementations_of(self, operation: int) -> np.ndarray:
        """Where an operation is computed and how, a column of R: uint8 of shape (stages,)."""
        own = self.computations.operation == operation
        column = np.zeros(self.stages, dtype=np.uint8)
        column[self.computations.stage[own]] = self.computations.implementation[own]
        return column

    def retained_into(self, stage: int) -> np.ndarray:
        """What is retained into a stage, a row of S: bool of shape (v,)."""
        row = np.zeros(len(self.graph.values), dtype=bool)
        row[self.retained.value[(self.retained.first <= stage) & (stage <= self.retained.last)]] = True
        return row

    def stages_of(self, value: int) -> np.ndarray:
        """Into which stages a value is retained, a column of S: bool of shape (stages,)."""
        column = np.zeros(self.stages, dtype=bool)
        for run in np.flatnonzero(self.retained.value == value):
            column[self.retained.first[run] : self.retained.last[run] + 1] = True
        return column

    def computed_in(self, stage: int) -> np.ndarray:
        """Which values a stage computes, a row of `computed`: bool of shape (v,)."""
        row, codes = np.zeros(len(self.graph.values), dtype=bool), self.implementations_in(stage)
        for k in np.flatnonzero(codes):
            row[list(self.graph.outputs(int(k), int(codes[k])))] = True
        return row

    def row_lists(self) -> tuple[bytes, bytes]:
        """Which operations each stage computes, and what it retains otherwise than the stage before, as `row_lists`.

        >>> from remat_explorer.instances import linear
        >>> keep = Schedule(linear(1), np.eye(3), [[0, 0, 0], [1, 0, 0], [1, 1, 0]])
        >>> [np.frombuffer(matrix, "<u4").tolist() for matrix in keep.row_lists()]
        [[3, 1, 1, 1, 0, 1, 2], [3, 0, 1, 1, 0, 1]]
        """
        computed = row_lists(self.stages, self.computations.stage, self.computations.operation)
        return computed, row_lists(self.stages, *self.retained.changes(self.stages))

    @cached_property
    def sequence(self) -> tuple[tuple[int, int, int], ...]:
        """Every computation in order, as (stage, operation, implementation)."""
        return tuple(self.computations.rows())

    @cached_property
    def cost(self) -> float:
        """The objective (1a): sum of C_i over every computation, first or repeated."""
        operations = self.graph.operations
        costs = (operations[k].implementations[code - 1].cost for _, k, code in self.sequence)
        return float(reduce(operator.add, costs, 0.0))  # as the checker adds; `sum` is another from Python 3.12 on

    @property
    def overhead(self) -> float:
        """Cost as a ratio to computing every mandatory operation once, in its default implementation."""
        return self.cost / self.graph.total_cost if self.graph.total_cost else 1.0

    @cached_property
    def recomputations(self) -> int:
        """How many computations are repetitions."""
        return len(self.sequence) - len({k for _, k, _ in self.sequence})

    @cached_property
    def computed(self) -> np.ndarray:
        """Which values stage t computes, bool of shape (stages, values)."""
        computed = np.zeros((self.stages, len(self.graph.values)), dtype=bool)
        for t, k, code in self.sequence:
            computed[t, list(self.graph.outputs(k, code))] = True
        return computed

    @cached_property
    def held(self) -> Held:
        """Bytes in use when each stage begins, and during and after each computation."""
        return held_bytes(self.graph, self.stages, self.computations, self.retained)

    @cached_property
    def U(self) -> np.ndarray:
        """Memory in use when operation k runs in stage t, equations (2) and (3), int64 of shape (stages, n).

        Resident bytes, the operation's outputs and its workspace are included; what k overwrites is not, where
        FREE[t,k] says that it dies there. Where k does not run, U is what is held at that point. A checkpoint that the
        stage does not use stays to the stage's end, as in the paper; the plan frees earlier, so its peak is never above
        `U_peak`.
        """
        return memory_matrix(self.graph.n, self.computations, self.held)

    @cached_property
    def U_peak(self) -> int:
        """The largest entry of U, bytes, without the matrix."""
        return memory_peak(self.graph.n, self.computations, self.held)

    def violation(self) -> str | None:
        """The first broken rule among (1b) to (1e), in words, or None; see `remat_explorer.schedule.rules`."""
        return violation(self.graph, self.stages, self.computations, self.retained)

    @property
    def is_frontier_advancing(self) -> bool:
        """(8a) to (8c): stage t is the first to compute mandatory operation m_t, and computes nothing later."""
        own, (stage, operation, _) = self.graph.mandatory, self.computations
        if self.stages != len(own) or (operation > own[stage]).any():
            return False
        return int((operation == own[stage]).sum()) == len(own)

    def compact(self) -> Schedule:
        """The same R without what serves nothing: each value is retained only for a later read, (1c) tight.

        A value that a stage both retains and computes is no longer retained into it, and recomputations that nobody
        reads are dropped. Cost and U never rise.
        """
        return Schedule.leanest(self.graph, self.stages, self.computations)


def _read_only(matrix: np.ndarray) -> np.ndarray:
    matrix.flags.writeable = False
    return matrix
