"""The band over the selected stage on the memory timeline, drawn by the browser into plotly's figure."""

from __future__ import annotations

from pathlib import Path

import anywidget
import ipywidgets as w
import traitlets as t


class TimelineCursor(anywidget.AnyWidget):
    """Lies beside the figure and draws into it: moving a shape of plotly's would draw the whole figure anew, 0.1 s.

    Attributes:
        start, end: where the stage begins and ends on the timeline's axis.
        colour: of the band, which is translucent.

    >>> cursor = TimelineCursor()
    >>> cursor.move(2.0, 3.0)
    >>> cursor.start, cursor.end
    (2.0, 3.0)
    """

    _esm = Path(__file__).parent / "timeline_cursor.js"
    start = t.Float(0).tag(sync=True)
    end = t.Float(0).tag(sync=True)
    colour = t.Unicode("").tag(sync=True)

    def __init__(self) -> None:
        super().__init__(layout=w.Layout(display="none"))

    def move(self, start: float, end: float) -> None:
        """Cover the timeline from ``start`` to ``end``, in units of its axis."""
        with self.hold_sync():
            self.start, self.end = start, end
