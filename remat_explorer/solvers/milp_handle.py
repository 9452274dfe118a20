"""What python-mip lacks, reached through its own handle on HiGHS: many rows, and all values, in one call each.

python-mip makes an object of every row and reads values one variable at a time; for a linear program with thousands
of rows and hundreds of rounds that takes longer than solving it. Both shortcuts give what the long way gives, and the
long way is taken where the handle is not as expected: with another back end, or another version of python-mip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_NEEDED = ("_lib", "_model", "_flush", "_row_committed")


@dataclass
class WaitingRows:
    """Rows that wait to be added, in compressed form.

    Attributes:
        starts: where each row's entries begin.
        columns, coefficients: of all entries; a column may occur twice in a row, and then counts with the sum.
        senses: "<", ">" or "=" for each row.
        rights: right-hand sides.
    """

    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)
    senses: list[str] = field(default_factory=list)
    rights: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.starts)

    def add(self, columns: Sequence[int], coefficients: Sequence[float], sense: str, right: float) -> None:
        """Add one row."""
        self.starts.append(len(self.columns))
        self.columns += columns
        self.coefficients += coefficients
        self.senses.append(sense)
        self.rights.append(right)

    def merged(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column and coefficient of every entry that is not 0, each column once in a row, rows ascending."""
        columns = np.array(self.columns, dtype=np.int64)
        lengths = np.diff([*self.starts, len(columns)])
        rows = np.repeat(np.arange(len(self.starts)), lengths)
        width = int(columns.max(initial=0)) + 1
        keys, place = np.unique(rows * width + columns, return_inverse=True)
        sums = np.bincount(place, weights=np.array(self.coefficients, dtype=float), minlength=len(keys))
        kept = sums != 0
        return keys[kept] // width, keys[kept] % width, sums[kept]


def add_rows(mip: Any, model: Any, rows: WaitingRows) -> tuple[np.ndarray, bool]:
    """Add rows to a model of python-mip.

    Args:
        mip: the package.
        model: a `mip.Model`.
        rows: without columns that the model does not have.

    Returns:
        Which rows were added, those with columns; and whether another contradicts itself, as ``0 >= 1`` does.
    """
    row, column, coefficient = rows.merged()
    senses, rights = np.array(rows.senses), np.array(rows.rights, dtype=float)
    filled = np.unique(row)
    empty = np.setdiff1d(np.arange(len(rows)), filled)
    slack = np.where(senses == "<", rights, np.where(senses == ">", -rights, -np.abs(rights)))
    contradiction = bool((slack[empty] < -1e-9).any())
    if not len(filled):
        return filled, contradiction
    starts, senses, rights = np.searchsorted(row, filled), senses[filled], rights[filled]
    if all(hasattr(model.solver, name) for name in _NEEDED):
        _add_at_once(model.solver, starts, column, coefficient, senses, rights)
    else:
        variables, ends = model.vars, [*starts[1:].tolist(), len(row)]
        for a, b, sense, right in zip(starts.tolist(), ends, senses.tolist(), rights.tolist(), strict=True):
            of_row = [variables[c] for c in column[a:b].tolist()]
            model.add_constr(mip.LinExpr(of_row, coefficient[a:b].tolist(), -right, sense))
    return filled, contradiction


def _add_at_once(
    solver: Any, starts: np.ndarray, column: np.ndarray, coefficient: np.ndarray, senses: np.ndarray, rights: np.ndarray
) -> None:
    from mip.highs import check, ffi

    solver._flush()
    doubles = (np.where(senses == "<", -math.inf, rights), np.where(senses == ">", math.inf, rights), coefficient)
    lower, upper, entries = (ffi.from_buffer("double[]", part.astype(np.float64).data) for part in doubles)
    begins, indices = (ffi.from_buffer("int[]", part.astype(np.int32).data) for part in (starts, column))
    check(solver._lib.Highs_addRows(solver._model, len(starts), lower, upper, len(column), begins, indices, entries))
    solver._row_committed += len(starts)  # python-mip counts rows itself


def values(model: Any) -> np.ndarray:
    """The last solution, one value per column."""
    stored = getattr(model.solver, "_x", None)
    return np.array(stored if stored else [variable.x for variable in model.vars], dtype=float)


def reduced_costs(model: Any) -> np.ndarray:
    """Of the last linear program, one per column."""
    stored = getattr(model.solver, "_rc", None)
    return np.array(stored if stored else [variable.rc for variable in model.vars], dtype=float)
