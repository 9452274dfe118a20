"""Settings of the few-moments relaxation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FewMomentsSettings:
    """How many moments there are, and what is too small to count.

    What other values change was measured by `benchmarks/search_settings.py`.
    """

    # Share of the budget below which a value is taken to be in memory for nothing, which is still a relaxation.
    # No difference measured with 5e-05 or 0.0002.
    always_kept: float = 1e-4
    # Moments at first.
    # With 2: mobilenet_v1 0.01 % gap after 1.9 times the seconds; keras_vgg_unet 0.01 % gap after 3.7 times the
    # seconds. With 8: unet 1 % gap after 0.5 times the seconds; mobilenet_v1 0.01 % gap after 1.9 times the seconds;
    # keras_vgg_unet 2.8 % more, 0.01 % gap after 4.2 times the seconds.
    first: int = 4
    # Moments in the end, at most.
    # No difference measured with 6 or 24.
    most: int = 12
    # Moments that a round adds, at most.
    # With 1: mobilenet_v1 0.01 % gap after 1.9 times the seconds. With 4: mobilenet_v1 0.01 % gap after 1.9 times the
    # seconds.
    added: int = 2
    # Share of the budget by which an estimate must exceed it for a moment to be added there.
    # No difference measured with 0.0005 or 0.002.
    short: float = 1e-3


FEW_MOMENTS = FewMomentsSettings()
