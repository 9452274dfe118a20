"""Settings of the rows and cuts that are added to the liveness formulation where a point violates them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DivisorSettings:
    """Which sizes memory is counted in whole multiples of.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Share of the budget that a size must exceed.
    smallest: float = 2e-3
    # Relative difference up to which sizes count as the same.
    alike: float = 1e-3
    # How many groups must have the size.
    times: int = 3
    # How many sizes there are, at most.
    most: int = 4


@dataclass(frozen=True)
class RowSettings:
    """What counts as violated, how much is added in a round, and when rounds end.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Memory rows that one round adds to a stage, at most.
    points: int = 3
    # Share of a block by which a rounded memory row must be exceeded to be added.
    blocks: float = 0.02
    # How much a cover must be violated to be added.
    covers: float = 0.02
    # How much a path cut must be violated to be added.
    paths: float = 0.02
    # Path cuts that one round adds, at most.
    most_paths: int = 500
    # Rise of the bound below which rounds end, as a share of the cost of computing everything once.
    least_progress: float = 3e-5
    # In how many rounds together it must rise so much.
    patience: int = 4
    # Of the rounded memory rows.
    divisors: DivisorSettings = DivisorSettings()


ROWS = RowSettings()
