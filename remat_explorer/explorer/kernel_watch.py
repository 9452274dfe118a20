"""What the page says of a kernel that is no longer there."""

from __future__ import annotations

from pathlib import Path

import anywidget


class KernelWatch(anywidget.AnyWidget):
    """A line above the explorer, empty as long as its kernel answers, for no kernel can say that it has gone."""

    _esm = Path(__file__).parent / "kernel_watch.js"
