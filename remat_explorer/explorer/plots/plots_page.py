"""What the browser does with plotly's figure by itself: the band over the stage, news of clicks and of lost changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as w
import traitlets as t

from remat_explorer.explorer.page_widget import PageWidget


class PlotsPage(PageWidget):
    """Lies beside the figure, draws into it and listens to it.

    Moving a shape of plotly's would draw the whole figure anew, 0.1 s. And FigureWidget tells of a click by a trait, of
    which only the last value is kept while the kernel is busy: the news that the pointer has gone replaces the click.
    Nor does it notice that a change did not arrive: here a page that stays behind says so, each time later.

    Args:
        clicked: called with the name of the trace and the number of the point for each click on one.
        missed: called when a page shows another revision of the figure than the one it should.
        arrived: called when a page has drawn the figure for the first time.

    Attributes:
        start, end: where the stage begins and ends on the timeline's axis.
        colour: of the band, which is translucent.
        revision: of the figure that should be on the screen; see `remat_explorer.explorer.plots.live_figure.Canvas`.

    >>> clicks, missed = [], []
    >>> page = PlotsPage(lambda *click: clicks.append(click), lambda: missed.append(page.revision), lambda: None)
    >>> page.move(2.0, 3.0)
    >>> page.start, page.end
    (2.0, 3.0)
    >>> page._handle_custom_msg({"trace": "optimal", "point": 4}, [])
    >>> clicks
    [('optimal', 4)]
    >>> page.revision = 7
    >>> page._handle_custom_msg({"missed": 6}, [])  # it has been told of another one meanwhile
    >>> page._handle_custom_msg({"missed": 7}, [])
    >>> missed
    [7]
    """

    _esm = Path(__file__).parent / "plots_page.js"
    start = t.Float(0).tag(sync=True)
    end = t.Float(0).tag(sync=True)
    colour = t.Unicode("").tag(sync=True)
    revision = t.Int(0).tag(sync=True)

    def __init__(
        self, clicked: Callable[[str, int], None], missed: Callable[[], None], arrived: Callable[[], None]
    ) -> None:
        super().__init__(layout=w.Layout(display="none"))
        self._clicked, self._missed, self._arrived = clicked, missed, arrived
        self.on_msg(self._hear)

    def _hear(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        if "trace" in content:
            self._clicked(content["trace"], content["point"])
        elif "arrived" in content:
            self._arrived()
        elif content["missed"] == self.revision:
            self._missed()

    def move(self, start: float, end: float) -> None:
        """Cover the timeline from ``start`` to ``end``, in units of its axis."""
        with self.hold_sync():
            self.start, self.end = start, end
