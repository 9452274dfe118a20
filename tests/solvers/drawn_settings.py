"""How many graphs a test of the heuristics draws: the same ones every time, and with no limit on the time for each."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

DRAWN = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
