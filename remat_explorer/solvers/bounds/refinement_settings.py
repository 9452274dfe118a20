"""Settings of the refinement: which stages become single, and when its integer program is asked."""

from __future__ import annotations

from dataclasses import dataclass

from remat_explorer.solvers.bounds.row_settings import ROWS, RowSettings


@dataclass(frozen=True)
class RefinementSettings:
    """Which stages become single, when the integer program is asked, and for how long.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Share of the budget by which a stage's estimated memory must exceed it for the stage to become single.
    short: float = 1e-3
    # Stages that a round makes single, at least.
    splits: int = 4
    # A round makes at least one stage single for so many that are.
    growth: int = 6
    # Rise of the linear program's optimum with which another one is worth more than branching, as a share of the cost.
    rise: float = 1e-4
    # In how many rounds together it must rise so much.
    patience: int = 2
    # Power of the memory in the choice of busy stages.
    fullness: float = 4.0
    # Columns up to which a problem is branched on at once.
    few_columns: int = 2500
    # Seconds for each column without which no larger integer program is begun: it does not look at its clock.
    branching_time: float = 3e-4
    # Linear programs that an integer program counts for in `Refinement.effort`.
    branching: int = 40
    # Slack up to which a cut is taken into the next round.
    binding: float = 1e-3
    # Nodes of the first integer programs.
    nodes: int = 20
    # Factor by which the limit on nodes rises when it was reached.
    deeper: int = 5
    # Of rows and cuts.
    rows: RowSettings = ROWS


REFINEMENT = RefinementSettings()
