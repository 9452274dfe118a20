"""Linear expressions of the columns of a problem, and rows that compare them.

All formulations build their rows of these: a variable that another one determines is an expression of it, a constant
where it is fixed, and needs no column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from remat_explorer.solvers.milp import Milp, Sense

ABSENT, PRESENT = -1, -2  # in arrays of column numbers: the constants 0 and 1


class LinearExpression(NamedTuple):
    """constant + sum of weight times column; a column that occurs twice counts with the sum of its weights."""

    constant: float = 0.0
    columns: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()

    @staticmethod
    def of(column: int) -> LinearExpression:
        """A single column."""
        return LinearExpression(0.0, (column,), (1.0,))

    @property
    def is_zero(self) -> bool:
        """Whether this is 0 at every point."""
        return not self.columns and self.constant == 0

    def __add__(self, other: LinearExpression) -> LinearExpression:
        return LinearExpression(
            self.constant + other.constant, self.columns + other.columns, self.weights + other.weights
        )

    def __mul__(self, factor: float) -> LinearExpression:
        weights = tuple([factor * weight for weight in self.weights])
        return LinearExpression(factor * self.constant, self.columns, weights)

    def __sub__(self, other: LinearExpression) -> LinearExpression:
        weights = self.weights + tuple([-weight for weight in other.weights])
        return LinearExpression(self.constant - other.constant, self.columns + other.columns, weights)

    def at(self, values: np.ndarray) -> float:
        """Its value at a point."""
        pairs = zip(self.columns, self.weights, strict=True)
        return self.constant + sum([weight * float(values[column]) for column, weight in pairs])


ZERO, ONE = LinearExpression(), LinearExpression(1.0)


def total(parts: Iterable[LinearExpression]) -> LinearExpression:
    """The sum of expressions."""
    constant: float = 0.0
    columns: list[int] = []
    weights: list[float] = []
    for part in parts:
        constant += part.constant
        columns += part.columns
        weights += part.weights
    return LinearExpression(constant, tuple(columns), tuple(weights))


def single_columns(expressions: Sequence[LinearExpression]) -> np.ndarray:
    """Expressions of at most one column as rows of (constant, column, weight), float of shape (expressions, 3).

    The column is -1 where there is none.
    """
    rows = [
        (constant, columns[0], weights[0]) if columns else (constant, -1, 0.0)
        for constant, columns, weights in expressions
    ]
    return np.array(rows, dtype=float).reshape(-1, 3)


def require(milp: Milp, parts: Iterable[tuple[float, LinearExpression]], sense: Sense, right: float = 0.0) -> int:
    """Add the row ``sum of weights times expressions, sense, right`` and return its number."""
    columns: list[int] = []
    weights: list[float] = []
    for factor, (constant, columns_of_part, weights_of_part) in parts:
        right -= factor * constant
        columns += columns_of_part
        for weight in weights_of_part:
            weights.append(factor * weight)
    return milp.row(columns, weights, sense, right)


def require_columns(milp: Milp, parts: Iterable[tuple[float, int]], sense: Sense, right: float = 0.0) -> int:
    """Add the row ``sum of weights times columns, sense, right`` and return its number.

    `ABSENT` stands for 0 and `PRESENT` for 1.
    """
    columns: list[int] = []
    weights: list[float] = []
    constant: float = 0.0
    for weight, column in parts:
        number = int(column)  # comparisons of an array's own numbers are slow
        if number >= 0:
            columns.append(number)
            weights.append(weight)
        elif number == PRESENT:
            constant += weight
    return milp.row(columns, weights, sense, right - constant)


def require_at_most(milp: Milp, less: LinearExpression, more: LinearExpression) -> None:
    """Add the row ``less <= more``, unless it holds wherever all columns are between 0 and 1."""
    weights: dict[int, float] = {}
    for factor, side in ((1.0, less), (-1.0, more)):
        for column, weight in zip(side.columns, side.weights, strict=True):
            weights[column] = weights.get(column, 0.0) + factor * weight
    room = more.constant - less.constant
    if sum(weight for weight in weights.values() if weight > 0) > room + 1e-12:
        milp.row(list(weights), list(weights.values()), "<", room)
