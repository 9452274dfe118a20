"""R and S of section 4.2 of Checkmate (Jain et al., MLSys 2020) without their zeros.

R is kept as the list of its ones. S is kept as runs: a value that is retained stays for many stages, and only the
first and the last of them are written down. Both grow with what a schedule does, not with the square of its operations.
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
