"""A schedule: what each stage computes (R) and what is kept into it (S), with cost and memory U.

Checkmate (Jain et al., MLSys 2020), sections 4.2 to 4.4, extended to operations with several outputs, workspace and
implementations, and to persistent values (parameter gradients, the loss), which are retained in every stage after
the one that first computes them.
"""

from __future__ import annotations

import operator
from collections import Counter
from functools import cached_property, reduce
from typing import Any

import numpy as np

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ScheduleError
from remat_explorer.graph import Graph
from remat_explorer.schedule.runs import (
    Computations,
    Held,
    Retained,
    held_bytes,
    leanest,
    malformed,
    memory_matrix,
    memory_peak,
    row_lists,
    violation,
)


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
        require_arguments(Schedule.__init__, locals())
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
        require_arguments(Schedule.of_runs, locals())
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
        require_arguments(Schedule.leanest, locals())
        if complaint := malformed(graph, stages, computations, Retained.of([])):
            raise ScheduleError(complaint)
        return Schedule.of_runs(graph, stages, *leanest(graph, stages, computations))

    def on(self, graph: Graph) -> Schedule:
        """The same entries for another graph, such as one with other costs.

        Raises:
            ScheduleError: if it lacks an operation, implementation or value.
        """
        require_arguments(Schedule.on, locals())
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
    def repeated_operations(self) -> dict[int, int]:
        """How often each operation runs that runs more than once."""
        runs = Counter(k for _, k, _ in self.sequence)
        return {k: count for k, count in runs.items() if count > 1}

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
        """The first broken rule among (1b) to (1e), in words, or None; see `remat_explorer.schedule.runs`."""
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
