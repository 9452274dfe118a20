"""What the browser does with plotly's figure by itself: the band over the selected stage, and news of clicks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anywidget
import ipywidgets as w
import traitlets as t


class PlotsPage(anywidget.AnyWidget):
    """Lies beside the figure, draws into it and listens to it.

    Moving a shape of plotly's would draw the whole figure anew, 0.1 s. And FigureWidget tells of a click by a trait, of
    which only the last value is kept while the kernel is busy: the news that the pointer has gone replaces the click.

    Args:
        clicked: called with the name of the trace and the number of the point for each click on one.

    Attributes:
        start, end: where the stage begins and ends on the timeline's axis.
        colour: of the band, which is translucent.

    >>> clicks = []
    >>> page = PlotsPage(lambda trace, point: clicks.append((trace, point)))
    >>> page.move(2.0, 3.0)
    >>> page.start, page.end
    (2.0, 3.0)
    >>> page._handle_custom_msg({"trace": "optimal", "point": 4}, [])
    >>> clicks
    [('optimal', 4)]
    """

    _esm = Path(__file__).parent / "plots_page.js"
    start = t.Float(0).tag(sync=True)
    end = t.Float(0).tag(sync=True)
    colour = t.Unicode("").tag(sync=True)

    def __init__(self, clicked: Callable[[str, int], None]) -> None:
        super().__init__(layout=w.Layout(display="none"))
        self.on_msg(lambda widget, content, buffers: clicked(content["trace"], content["point"]))

    def move(self, start: float, end: float) -> None:
        """Cover the timeline from ``start`` to ``end``, in units of its axis."""
        with self.hold_sync():
            self.start, self.end = start, end
