"""Mixed-integer linear programs, built fast and solved through python-mip, and the back ends that it reaches.

Columns and rows are numbered from 0; a row is given by columns and coefficients. Facts about python-mip 2.0 that this
layer absorbs: an expression that names a variable twice keeps only its last coefficient; HiGHS completes a partial
start with zeros; CBC prints while it solves linear programs; a time limit of HiGHS counts over all the linear programs
that one model has solved; what an interrupted linear program says of its objective is not a bound; HiGHS keeps the
number of threads of its first solve; and in an integer program it may not look at its clock for a minute, so that a
solve which is late is left to itself.

python-mip makes an object of every row and reads values one variable at a time, which takes longer than solving where
there are thousands of rows and hundreds of rounds. Both go through its own handle on HiGHS, in one call each, with the
same result; the long way is taken with another back end, or another version of python-mip.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from remat_explorer.errors import SolverError, UnknownNameError


@dataclass(frozen=True)
class Backend:
    """One MILP solver."""

    name: str  # the solver's own spelling, for people
    mip_name: str  # the name that python-mip expects
    prints: bool  # whether it writes to standard output although it is told not to
    clock_runs_on: bool  # whether its time limit for linear programs counts from the first solve of a model on
    keeps_threads: bool  # a set for each thread of Python that calls it, and refuses another number of them
    remedy: str  # what to do where it is missing
    frees: tuple[str, str, tuple[str, ...]] | None = None  # module, library, names of what python-mip frees models with

    def load(self) -> None:
        """Import the library, and look up the functions that free a model while there is none.

        cffi looks a function up at its first use, and takes a lock that one thread cannot take twice. Where garbage is
        collected while the lock is held, a model that is freed for the first time would wait for ever.
        """
        if self.frees is not None:
            module, library, names = self.frees
            functions = getattr(importlib.import_module(module), library)
            for name in names:
                getattr(functions, name)


BACKENDS = {
    "highs": Backend(
        "HiGHS",
        "HIGHS",
        prints=False,
        clock_runs_on=True,
        keeps_threads=True,
        remedy='reinstall the package mip with HiGHS: pip install --force-reinstall mip "highspy<1.16"',
        frees=("mip.highs", "highslib", ("Highs_destroy",)),
    ),
    "cbc": Backend(
        "CBC",
        "CBC",
        prints=True,
        clock_runs_on=False,
        keeps_threads=False,
        remedy="reinstall the package mip with CBC: pip install --force-reinstall mip cbcbox",
        frees=("mip.cbc", "cbclib", ("Cbc_deleteModel",)),
    ),
    "gurobi": Backend(
        "Gurobi",
        "GUROBI",
        prints=True,
        clock_runs_on=False,
        keeps_threads=False,
        remedy='get Gurobi with a licence of your own: pip install "mip[gurobi]", or set GUROBI_HOME to the folder of '
        "an installation; the solvers 'highs' and 'cbc' came with this package",
    ),
}


def backend(name: str) -> Backend:
    """The back end called ``name``."""
    if name not in BACKENDS:
        raise UnknownNameError("solver", name, BACKENDS)
    return BACKENDS[name]


def missing_backend(name: str, error: Exception) -> SolverError:
    """The error that says how to get a back end that could not be loaded."""
    reason = " ".join(str(error).split()).split(". ")[0].rstrip(".") or type(error).__name__
    return SolverError(f"the solver {name!r} cannot be loaded: {reason}; {BACKENDS[name].remedy}")


_NEEDED = ("_lib", "_model", "_flush", "_row_committed")


@dataclass
class WaitingRows:
    """Rows that wait to be added, in compressed form."""

    starts: list[int] = field(default_factory=list)  # where each row's entries begin
    columns: list[int] = field(default_factory=list)  # of all entries; one that is twice in a row counts with the sum
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

    Returns which rows were added, those with columns; and whether another contradicts itself, as ``0 >= 1`` does.
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


Sense = Literal["<", ">", "="]
SLOWNESS = 8e-6  # seconds per column that a back end needs to notice its time limit and to hand the values over
LATE = 0.5  # seconds after its time limit at which a solve is left to itself
LOOK = 0.1  # seconds between two questions whether the person cancelled
SMALL = 500  # columns up to which a linear program ends before anyone could wait for it
RELATIVE_GAP = 1e-7  # a tenth of the gap up to which a solution is called optimal

_kept = threading.local()  # threads: their number in the last solve that this thread of Python asked HiGHS for


@dataclass(frozen=True)
class MilpOutcome:
    """How a solve ended."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    objective: float | None
    bound: float  # no feasible point is below it; -inf when nothing is proven, inf when infeasible
    values: np.ndarray | None  # one float per column, or None


class Milp:
    """A minimization problem that grows by columns and rows between solves.

    Args:
        relaxed: whether every column is continuous, until `require_integers`: the linear programming relaxation.

    Raises:
        UnknownNameError: if there is no such solver.
        SolverError: if the solver's library cannot be loaded.

    >>> problem = Milp()
    >>> x, y = problem.column(cost=-2, integer=True), problem.column(cost=-3, integer=True)
    >>> problem.row([x, y], [2, 2], "<", 3)
    0
    >>> outcome = problem.solve()
    >>> outcome.status, outcome.objective
    ('optimal', -3.0)
    """

    def __init__(self, solver: str = "highs", threads: int = 1, relaxed: bool = False) -> None:
        self.backend = backend(solver)
        self.relaxed = relaxed
        self.columns = 0
        self._contradiction = False
        self._rights: list[float] = []
        self._places: list[int] = []  # of each row in the model, -1 where it has no columns
        self._integers: list[int] = []
        self._seconds = 0.0
        self._abandoned = False
        self._rows = WaitingRows()
        try:
            import mip

            self._mip = mip
            with _standard_output_closed(self.backend.prints):
                self.backend.load()
                self._model: Any = mip.Model(sense=mip.MINIMIZE, solver_name=self.backend.mip_name)
        except Exception as error:  # python-mip raises of many kinds: no library, another version's, no licence
            raise missing_backend(solver, error) from None
        self._model.verbose = 0
        self._model.threads = threads
        self._model.max_mip_gap = self._model.max_mip_gap_abs = RELATIVE_GAP

    def column(self, cost: float = 0.0, lower: float = 0.0, upper: float = 1.0, integer: bool = False) -> int:
        """Add a variable and return its number."""
        kind = self._mip.INTEGER if integer and not self.relaxed else self._mip.CONTINUOUS
        self._model.add_var(lb=lower, ub=upper, obj=float(cost), var_type=kind)
        if integer and self.relaxed:
            self._integers.append(self.columns)
        self.columns += 1
        return self.columns - 1

    def require_integers(self) -> None:
        """From here on, columns that were declared integer are: the relaxation becomes the whole problem."""
        if not self.relaxed or self._abandoned:
            return
        self.relaxed = False
        all_at_once = getattr(self._model.solver, "_reset_var_types", None)
        if all_at_once is not None and self.columns:
            kinds = np.full(self.columns, self._mip.CONTINUOUS, dtype=object)
            kinds[self._integers] = self._mip.INTEGER
            all_at_once(kinds.tolist())
        else:
            for column in self._integers:
                self._model.vars[column].var_type = self._mip.INTEGER

    def without_presolve(self) -> None:
        """Solve as it stands, where the back end can: HiGHS's presolve has called feasible problems infeasible."""
        choose = getattr(self._model.solver, "_set_string_option_value", None)
        if choose is not None:
            choose("presolve", "off")
        else:
            self._model.preprocess = 0

    def row(self, columns: Sequence[int], coefficients: Sequence[float], sense: Sense, right: float) -> int:
        """Add the row ``sum(coefficients * columns) sense right`` and return its number."""
        self._rows.add(columns, coefficients, sense, right)
        self._rights.append(right)
        return len(self._rights) - 1

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._rights)

    def right(self, row: int) -> float:
        """The right-hand side of a row."""
        return self._rights[row]

    def set_right(self, row: int, right: float) -> None:
        """Change the right-hand side of a row that has columns; the back end keeps its basis."""
        self._rights[row] = right
        if self._abandoned:
            return
        self._flush()
        if self._places[row] >= 0:
            self._model.solver.constr_set_rhs(self._places[row], right)

    @property
    def contradiction(self) -> bool:
        """Whether a row without columns cannot hold."""
        self._flush()
        return self._contradiction

    def _flush(self) -> None:
        if len(self._rows):
            before = self._model.solver.num_rows()
            filled, contradiction = add_rows(self._mip, self._model, self._rows)
            places = np.full(len(self._rows), -1)
            places[filled] = before + np.arange(len(filled))
            self._places += places.tolist()
            self._contradiction |= contradiction
            self._rows = WaitingRows()

    def solve(
        self,
        time_limit: float = math.inf,
        start: np.ndarray | None = None,
        nodes: int | None = None,
        gap: float = 0.0,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> MilpOutcome:
        """Solve within ``time_limit`` seconds.

        A back end that goes on for longer, or after a cancel, is left to itself, in a thread of its own: the outcome is
        unknown, and so is that of every later solve of this problem.

        Args:
            time_limit: seconds of wall time.
            start: a feasible point to begin with, one value per column.
            nodes: of the search tree, at most; a limit that, unlike time, is the same in every run.
            gap: how far the objective may be from the bound when the solution is called optimal.
            cancelled: asked ten times a second while the back end works.

        Raises:
            SolverError: if the back end reports an error.
        """
        if self._abandoned:
            return MilpOutcome("unknown", None, -math.inf, None)
        if self.contradiction:
            return MilpOutcome("infeasible", None, math.inf, None)
        if not self.columns:
            return MilpOutcome("optimal", 0.0, 0.0, np.empty(0))
        if time_limit <= 0:
            return MilpOutcome("unknown", None, -math.inf, None)
        begun = time.monotonic()
        end = begun + time_limit + LATE
        time_limit -= min(SLOWNESS * self.columns, time_limit / 4)
        if self.relaxed and self.backend.clock_runs_on:
            time_limit += self._seconds
        with _standard_output_closed(self.backend.prints):
            if start is not None and not self.relaxed:
                self._model.start = list(zip(self._model.vars, map(float, start), strict=True))
            limit = self._mip.INF if math.isinf(time_limit) else max(0.01, time_limit)
            self._model.max_mip_gap_abs = max(gap, RELATIVE_GAP)
            self._model.max_nodes = self._mip.INT_MAX if nodes is None else nodes
            if self.relaxed and self.columns <= SMALL:
                status = self._optimize(limit)
            else:
                status = self._optimize_beside(limit, end, cancelled)
        self._seconds += time.monotonic() - begun
        return MilpOutcome("unknown", None, -math.inf, None) if status is None else self._outcome(status)

    def _optimize(self, seconds: float) -> Any:
        """Let the back end work in this thread; its status."""
        self._release_threads()
        return self._model.optimize(max_seconds=seconds)

    def _optimize_beside(self, seconds: float, end: float, cancelled: Callable[[], bool]) -> Any:
        """Let the back end work in a thread of its own; its status, or None where it does not stop."""
        working: Future[Any] = Future()

        def work() -> None:
            try:
                working.set_result(self._optimize(seconds))
            except BaseException as error:
                working.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        while time.monotonic() < end and not cancelled():
            with contextlib.suppress(TimeoutError):
                return working.result(LOOK)
        self._abandoned = not working.done()
        return None if self._abandoned else working.result()

    def _release_threads(self) -> None:
        """Let go of threads that were kept from a solve with another number of them."""
        if self.backend.keeps_threads:
            if getattr(_kept, "threads", self._model.threads) != self._model.threads:
                self._model.solver._lib.Highs_resetGlobalScheduler(1)
            _kept.threads = self._model.threads

    @property
    def objective(self) -> float:
        """Objective of the last solve."""
        return float(self._model.objective_value)

    def reduced_costs(self) -> np.ndarray:
        """Of the last linear program: by how much the objective rises, at least, for each unit that a column moves."""
        return reduced_costs(self._model)

    def _outcome(self, status: Any) -> MilpOutcome:
        kinds = self._mip.OptimizationStatus
        if status == kinds.ERROR:
            raise SolverError(f"{self.backend.name} reported an error; try another solver, or a larger budget")
        if status in (kinds.INFEASIBLE, kinds.INT_INFEASIBLE, kinds.UNBOUNDED, kinds.INF_OR_UNBD):
            # every column of this package's problems is bounded, so "unbounded or infeasible" means infeasible
            return MilpOutcome("infeasible", None, math.inf, None)
        if status in (kinds.OPTIMAL, kinds.FEASIBLE):
            point = values(self._model)
            objective = float(self._model.objective_value)
            if self.relaxed:
                return MilpOutcome("optimal", objective, objective, point)
            name = "optimal" if status == kinds.OPTIMAL else "feasible"
            return MilpOutcome(name, objective, min(objective, self._bound()), point)
        return MilpOutcome("unknown", None, -math.inf if self.relaxed else self._bound(), None)

    def _bound(self) -> float:
        bound = self._model.objective_bound
        return -math.inf if bound is None or math.isnan(bound) or abs(bound) > 1e20 else float(bound)


@contextlib.contextmanager
def _standard_output_closed(prints: bool) -> Iterator[None]:
    """Send what C code prints to the null device; Python's own output is not lost, since it is flushed before."""
    if not prints:
        yield
        return
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        flush(None)  # C's buffer must be emptied before descriptor 1 is itself again
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)
