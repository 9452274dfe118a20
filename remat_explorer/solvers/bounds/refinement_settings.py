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
    # No difference measured with 0.0005 or 0.002.
    short: float = 1e-3
    # Stages that a round makes single, at least.
    # With 2: no difference. With 8: unet gap +0.9 points.
    splits: int = 4
    # A round makes at least one stage single for so many that are.
    # No difference measured with 3 or 12.
    growth: int = 6
    # Rise of the linear program's optimum with which another one is worth more than branching, as a share of the cost.
    # No difference measured with 5e-05 or 0.0002.
    rise: float = 1e-4
    # In how many rounds together it must rise so much.
    # No difference measured with 1 or 4.
    patience: int = 2
    # Power of the memory in the choice of busy stages.
    # No difference measured with 2 or 8.
    fullness: float = 4.0
    # Columns up to which a problem is branched on at once.
    # With 1250: unet gap +1.0 points; mobilenet_v1 0.01 % gap after 1.9 times the seconds. With 5000: no difference.
    few_columns: int = 2500
    # Seconds for each column without which no larger integer program is begun: it does not look at its clock.
    # No difference measured with 0.00015 or 0.0006.
    branching_time: float = 3e-4
    # Linear programs that an integer program counts for in `Refinement.effort`.
    # No difference measured with 20 or 80.
    branching: int = 40
    # Slack up to which a cut is taken into the next round.
    # No difference measured with 0.0005 or 0.002.
    binding: float = 1e-3
    # Nodes of the first integer programs.
    # No difference measured with 10 or 40.
    nodes: int = 20
    # Factor by which the limit on nodes rises when it was reached.
    # No difference measured with 2 or 10.
    deeper: int = 5
    # Of rows and cuts.
    rows: RowSettings = ROWS


REFINEMENT = RefinementSettings()
