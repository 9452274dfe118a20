"""The best schedule in which only chosen operations run again in chosen stages.

What a relaxation computes again, together with what the incumbent does, leaves few variables: the liveness formulation
over all stages is then small, even where the whole is not, and its optimum is a schedule. It says nothing about others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_explorer.schedule import Schedule
from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.bounds.lazy_rows import LivenessRelaxation, refuse
from remat_explorer.solvers.bounds.point import Point
from remat_explorer.solvers.condensed import Condensed

GAP = 1e-6  # of the cost of computing everything once: the integer program is solved to that


@dataclass(frozen=True)
class RestrictedSettings:
    """How large a problem may be, and how long it is branched on.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Columns, at most: a larger problem is left alone.
    # No difference measured with 7500 or 30,000.
    most_columns: int = 15_000
    # Nodes of each integer program's search tree, at most.
    # No difference measured with 50 or 200.
    nodes: int = 100


RESTRICTED = RestrictedSettings()


def solve_within(
    condensed: Condensed,
    budget: int,
    allowed: np.ndarray,
    limits: Limits,
    incumbent: Schedule | None = None,
    settings: RestrictedSettings = RESTRICTED,
) -> Schedule | None:
    """A schedule cheaper than the incumbent in which only what is allowed runs again, or None.

    Args:
        condensed: n operations and their groups of values.
        budget: bytes, resident bytes included.
        allowed: which operation may run again in which stage, bool of shape (n, n).
        limits: time, back end and whom to tell.
        incumbent: the best schedule so far; what it computes again is allowed, too.
        settings: how large the problem may be, and how long it is branched on.
    """
    if incumbent is not None:
        allowed = allowed | (incumbent.R > 0)
    quiet = Limits(limits.left, limits.solver, limits.threads, cancelled=limits.cancelled)
    relaxation = LivenessRelaxation(condensed, budget, quiet, allowed=allowed)
    if not relaxation.build() or relaxation.model.milp.columns > settings.most_columns:
        return None
    relaxed = relaxation.solve(incumbent)
    model = relaxation.model
    if relaxed.R is None or (incumbent is not None and relaxed.bound >= incumbent.cost * (1 - GAP)):
        return None
    model.milp.require_integers()
    start = None if incumbent is None else (incumbent.R, incumbent.S[:, condensed.member])
    while not quiet.over:
        point = None if start is None else model.start(*start)
        outcome = model.milp.solve(
            quiet.left, point, nodes=settings.nodes, gap=GAP * condensed.n, cancelled=quiet.cancelled
        )
        if outcome.values is None:
            return None
        if not refuse(model, outcome.values):
            schedule = condensed.schedule(model.matrices(outcome.values)[0].round())
            return schedule if incumbent is None or schedule.cost < incumbent.cost else None
    return None


def run_again_in(point: Point, above: float = 0.5) -> np.ndarray:
    """Which operations a relaxation's point runs again, in every stage of the entry in which it does.

    Returns:
        bool of shape (n, n).
    """
    stages, n = point.stages, point.stages.condensed.n
    again = (above < point.R) & (np.arange(n) < stages.first[:, None])
    return np.repeat(again, stages.last - stages.first + 1, axis=0)
