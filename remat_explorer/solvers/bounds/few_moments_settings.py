"""Settings of the few-moments relaxation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FewMomentsSettings:
    """How many moments there are, and what is too small to count.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Share of the budget below which a value is taken to be in memory for nothing, which is still a relaxation.
    always_kept: float = 1e-4
    # Moments at first.
    first: int = 4
    # Moments in the end, at most.
    most: int = 12
    # Moments that a round adds, at most.
    added: int = 2
    # Share of the budget by which an estimate must exceed it for a moment to be added there.
    short: float = 1e-3


FEW_MOMENTS = FewMomentsSettings()
