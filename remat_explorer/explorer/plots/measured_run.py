"""The measured memory draws itself over the prediction, at the pace of the run.

It does so when everything has been measured, not while the plan runs. On the CPU the allocations of a run are handed
over in one piece at its end; and what draws in a browser on the same machine takes a processor from the runs that are
timed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets as w
import traitlets as t

from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.pacing import moments, pace


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


class MeasuredRunView:
    """Draws each new measurement, and again whenever somebody asks for it by ``state.drawings``."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.widget = MeasuredRun(layout=w.Layout(display="none"))
        state.observe(self._draw, "measurement")
        state.observe(self._draw_again, "drawings")

    def _draw(self, change: Any) -> None:
        if change["new"] is not None:
            self._state.drawings += 1

    def _draw_again(self, change: Any) -> None:
        if self._state.measurement is None:
            return
        with self.widget.hold_sync():
            self.widget.moments, self.widget.duration = moments(self._state.measurement), pace(self._state.measurement)
            self.widget.drawings = self._state.drawings
