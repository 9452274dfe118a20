"""The measured memory draws itself over the prediction, at the pace of the run made slower or faster, to be watched.

It does so when everything has been measured, not while the plan runs. On the CPU the allocations of a run are handed
over in one piece at its end; and what draws in a browser on the same machine takes a processor from the runs that are
timed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets as w
import numpy as np
import traitlets as t

from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import State
from remat_explorer.plan import Compute

LEAST, MOST = 2.0, 6.0  # seconds that the drawing takes
PLACES = 128  # parts of the timeline for which there is a time


class MeasuredRunView:
    """Draws each new measurement, and again whenever somebody asks for it by ``state.drawings``."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = MeasuredRun(layout=w.Layout(display="none"))
        state.observe(self._draw, "measurement")
        state.observe(self._draw_again, "drawings")

    def _draw(self, change: Any) -> None:
        if change["new"] is not None and change["new"].is_timed:
            self._state.drawings += 1

    def _draw_again(self, change: Any) -> None:
        if self._state.measurement is None:
            return
        with self.widget.hold_sync():
            self.widget.moments, self.widget.duration = (
                drawing_moments(self._state.measurement),
                drawing_seconds(self._state.measurement),
            )
            self.widget.drawings = self._state.drawings


class MeasuredRun(PageWidget):
    """Has nothing to show of its own: it uncovers the measured line of the explorer's figure from left to right.

    Attributes:
        drawings: how often the line shall have drawn itself; each change draws it anew.
        moments: the share of the run's time that has passed at places which divide the timeline evenly.
        duration: seconds that the drawing takes.
    """

    _esm = Path(__file__).parent / "measured_run.js"
    drawings = t.Int(0).tag(sync=True)
    moments = t.List([]).tag(sync=True)
    duration = t.Float(0).tag(sync=True)


def drawing_moments(measurement: Any) -> list[float]:
    """Shares of the run's time, from 0 to 1, at `PLACES` + 1 places that divide the computations of the plan evenly."""
    seconds = np.asarray(measurement.statement_seconds, dtype=float)
    begins = np.append(np.cumsum(seconds) - seconds, seconds.sum())
    runs = [i for i, statement in enumerate(measurement.plan.statements) if isinstance(statement, Compute)]
    times = begins[[*runs, len(seconds)]]
    places = np.linspace(0, len(runs), PLACES + 1)
    shares = np.interp(places, np.arange(len(runs) + 1), times) / max(float(begins[-1]), 1e-12)
    return [round(float(share), 5) for share in shares]


def drawing_seconds(measurement: Any) -> float:
    """Seconds that the drawing takes: as many as the run, but neither too few to be seen nor too many to wait for."""
    return float(np.clip(np.sum(measurement.statement_seconds), LEAST, MOST))


def describe_pace(measurement: Any) -> str:
    """The pace in words.

    >>> from types import SimpleNamespace
    >>> [describe_pace(SimpleNamespace(statement_seconds=np.array([s]))) for s in (0.05, 3, 60)]
    ['40 times slower than the plan ran', 'as fast as the plan ran', '10 times faster than the plan ran']
    """
    ratio = drawing_seconds(measurement) / max(float(np.sum(measurement.statement_seconds)), 1e-9)
    if 0.95 < ratio < 1.05:
        return "as fast as the plan ran"
    times, how = (ratio, "slower") if ratio > 1 else (1 / ratio, "faster")
    return f"{float(f'{times:.2g}'):,.10g} times {how} than the plan ran"
