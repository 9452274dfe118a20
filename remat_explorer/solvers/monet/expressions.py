"""Sums of columns, as the joint problem adds and compares them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from remat_explorer.solvers.milp import Milp


@dataclass(frozen=True)
class Sum:
    """constant + sum of coefficient times column.

    >>> (Sum(1.0) - Sum.of(4)).terms
    ((4, -1.0),)
    """

    constant: float = 0.0
    terms: tuple[tuple[int, float], ...] = ()

    @staticmethod
    def of(column: int) -> Sum:
        """A single column."""
        return Sum(0.0, ((column, 1.0),))

    @property
    def is_zero(self) -> bool:
        """Whether this is 0 at every point."""
        return not self.terms and self.constant == 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.constant + other.constant, self.terms + other.terms)

    def __mul__(self, factor: float) -> Sum:
        return Sum(self.constant * factor, tuple((column, factor * weight) for column, weight in self.terms))

    def __sub__(self, other: Sum) -> Sum:
        return self + other * -1.0

    def at(self, values: np.ndarray) -> float:
        """Its value at a point."""
        return self.constant + sum(weight * float(values[column]) for column, weight in self.terms)


ZERO, ONE = Sum(), Sum(1.0)


def total(parts: Iterable[Sum]) -> Sum:
    """The sum of sums.

    >>> total([Sum.of(0), Sum(2.0)])
    Sum(constant=2.0, terms=((0, 1.0),))
    """
    constant, terms = 0.0, []
    for part in parts:
        constant += part.constant
        terms += part.terms
    return Sum(constant, tuple(terms))


def require(milp: Milp, less: Sum, more: Sum) -> None:
    """Add the row ``less <= more``, unless it holds wherever all columns are between 0 and 1."""
    weights: dict[int, float] = {}
    for factor, side in ((1.0, less), (-1.0, more)):
        for column, weight in side.terms:
            weights[column] = weights.get(column, 0.0) + factor * weight
    room = more.constant - less.constant
    if sum(weight for weight in weights.values() if weight > 0) > room + 1e-12:
        milp.row(list(weights), list(weights.values()), "<", room)
