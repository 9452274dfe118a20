"""The MILP back ends reached through python-mip, and what differs between them: one table."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from remat_explorer.errors import SolverError, UnknownNameError


@dataclass(frozen=True)
class Backend:
    """One MILP solver.

    Attributes:
        name: the solver's own spelling, for people.
        mip_name: the name that python-mip expects.
        prints: whether it writes to standard output although it is told not to.
        clock_runs_on: whether its time limit for linear programs counts from the first solve of a model on.
        keeps_threads: whether it keeps its threads for the next solve, one set for each thread of Python that calls it,
            and refuses to run with another number of them.
        remedy: what to do where it is missing.
        frees: the functions with which python-mip frees what belongs to a model, as module, library, names.
    """

    name: str
    mip_name: str
    prints: bool
    clock_runs_on: bool
    keeps_threads: bool
    remedy: str
    frees: tuple[str, str, tuple[str, ...]] | None = None

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
        remedy='reinstall the package mip with HiGHS: pip install --force-reinstall "mip[highs]"',
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
    """The back end called ``name``.

    Raises:
        UnknownNameError: if there is none; near matches are listed.

    >>> backend("highs").name
    'HiGHS'
    """
    if name not in BACKENDS:
        raise UnknownNameError("solver", name, BACKENDS)
    return BACKENDS[name]


def missing(name: str, error: Exception) -> SolverError:
    """The error that says how to get a back end that could not be loaded.

    Args:
        name: a key of `BACKENDS`.
        error: what loading it raised; its first sentence is quoted.

    >>> str(missing("cbc", OSError("no library. Look elsewhere")))[:62]
    "the solver 'cbc' cannot be loaded: no library; reinstall the p"
    """
    reason = " ".join(str(error).split()).split(". ")[0].rstrip(".") or type(error).__name__
    return SolverError(f"the solver {name!r} cannot be loaded: {reason}; {BACKENDS[name].remedy}")
