"""Settings of the rows and cuts that are added to the liveness formulation where a point violates them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DivisorSettings:
    """Which sizes memory is counted in whole multiples of.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Share of the budget that a size must exceed.
    # No difference measured with 0.001 or 0.004.
    smallest: float = 2e-3
    # Relative difference up to which sizes count as the same.
    # No difference measured with 0.0005 or 0.002.
    alike: float = 1e-3
    # How many groups must have the size.
    # No difference measured with 1 or 6.
    times: int = 3
    # How many sizes there are, at most.
    # With 2: unet gap +0.4 points; mobilenet_v1 0.01 % gap after 1.7 times the seconds. With 8: mobilenet_v1 0.01 % gap
    # after 1.6 times the seconds.
    most: int = 4


@dataclass(frozen=True)
class RowSettings:
    """What counts as violated, how much is added in a round, and when rounds end.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Memory rows that one round adds to a stage, at most.
    # With 1: unet gap +0.1 points. With 6: unet gap +0.1 points.
    points: int = 3
    # Share of a block by which a rounded memory row must be exceeded to be added.
    # No difference measured with 0.01 or 0.04.
    blocks: float = 0.02
    # How much a cover must be violated to be added.
    # No difference measured with 0.01 or 0.04.
    covers: float = 0.02
    # How much a path cut must be violated to be added.
    # With 0.01: unet gap +0.1 points. With 0.04: no difference.
    paths: float = 0.02
    # Path cuts that one round adds, at most.
    # No difference measured with 250 or 1000.
    most_paths: int = 500
    # Rise of the bound below which rounds end, as a share of the cost of computing everything once.
    # No difference measured with 1.5e-05 or 6e-05.
    least_progress: float = 3e-5
    # In how many rounds together it must rise so much.
    # No difference measured with 2 or 8.
    patience: int = 4
    # Of the rounded memory rows.
    divisors: DivisorSettings = DivisorSettings()


ROWS = RowSettings()
