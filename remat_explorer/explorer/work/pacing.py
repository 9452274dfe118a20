"""At which pace a measured run is drawn: its own, made slower or faster so that it can be watched."""

from __future__ import annotations

from typing import Any

import numpy as np

from remat_explorer.plan import Compute

LEAST, MOST = 2.0, 6.0  # seconds that the drawing takes
PLACES = 128  # parts of the timeline for which there is a time


def moments(measurement: Any) -> list[float]:
    """Shares of the run's time, from 0 to 1, at `PLACES` + 1 places that divide the computations of the plan evenly."""
    seconds = np.asarray(measurement.statement_seconds, dtype=float)
    begins = np.append(np.cumsum(seconds) - seconds, seconds.sum())
    runs = [i for i, statement in enumerate(measurement.plan.statements) if isinstance(statement, Compute)]
    times = begins[[*runs, len(seconds)]]
    places = np.linspace(0, len(runs), PLACES + 1)
    shares = np.interp(places, np.arange(len(runs) + 1), times) / max(float(begins[-1]), 1e-12)
    return [round(float(share), 5) for share in shares]


def pace(measurement: Any) -> float:
    """Seconds that the drawing takes: as many as the run, but neither too few to be seen nor too many to wait for."""
    return float(np.clip(np.sum(measurement.statement_seconds), LEAST, MOST))


def pace_text(measurement: Any) -> str:
    """The pace in words.

    >>> from types import SimpleNamespace
    >>> [pace_text(SimpleNamespace(statement_seconds=np.array([s]))) for s in (0.05, 3, 60)]
    ['40 times slower than the plan ran', 'as fast as the plan ran', '10 times faster than the plan ran']
    """
    ratio = pace(measurement) / max(float(np.sum(measurement.statement_seconds)), 1e-9)
    if 0.95 < ratio < 1.05:
        return "as fast as the plan ran"
    times, how = (ratio, "slower") if ratio > 1 else (1 / ratio, "faster")
    return f"{float(f'{times:.2g}'):,.10g} times {how} than the plan ran"
