"""What the page does for the explorer as a whole: says that its kernel has gone, and names what has no name."""

from __future__ import annotations

from pathlib import Path

import anywidget


class ExplorerPage(anywidget.AnyWidget):
    """A line above the explorer, empty as long as its kernel answers, for no kernel can say that it has gone.

    It also gives screen readers what ipywidgets has no trait for: the stage slider's name, and that buttons are tabs.
    """

    _esm = Path(__file__).parent / "explorer_page.js"
