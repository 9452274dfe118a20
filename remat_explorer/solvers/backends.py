"""The MILP back ends reached through python-mip, and what differs between them: one table."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.errors import UnknownNameError


@dataclass(frozen=True)
class Backend:
    """One MILP solver.

    Attributes:
        name: the solver's own spelling, for people.
        mip_name: the name that python-mip expects.
        prints: whether it writes to standard output although it is told not to.
        clock_runs_on: whether its time limit for linear programs counts from the first solve of a model on.
    """

    name: str
    mip_name: str
    prints: bool
    clock_runs_on: bool


BACKENDS = {
    "highs": Backend("HiGHS", "HIGHS", prints=False, clock_runs_on=True),
    "cbc": Backend("CBC", "CBC", prints=True, clock_runs_on=False),
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
