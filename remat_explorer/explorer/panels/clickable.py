"""HTML in which names, rows and buttons can be clicked: the one mechanism of every panel beside the plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import traitlets as t

from remat_explorer.explorer.page_widget import PageWidget

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Click:
    """What was clicked: a value, a stage, an action, or several of them."""

    value: int | None = None
    stage: int | None = None
    action: str = ""


class Clickable(PageWidget):
    """Shows `html`, whose text is escaped by whoever writes it, and tells of clicks.

    Args:
        heard: called with each `Click`.
        label: what a screen reader calls it.

    >>> clicks = []
    >>> shown = Clickable(clicks.append, "Values")
    >>> shown._custom({"value": 3, "stage": None, "action": ""}, [])
    >>> clicks
    [Click(value=3, stage=None, action='')]
    """

    _esm = HERE / "clickable.js"
    _css = HERE / "panels.css"
    html = t.Unicode("").tag(sync=True)
    label = t.Unicode("").tag(sync=True)

    def __init__(self, heard: Callable[[Click], None], label: str) -> None:
        super().__init__(label=label)
        self._heard = heard
        self.on_msg(lambda widget, content, buffers: self._custom(content, buffers))

    def _custom(self, content: Any, buffers: Any) -> None:
        value, stage = (content.get(name) for name in ("value", "stage"))
        click = Click(
            value if isinstance(value, int) else None,
            stage if isinstance(stage, int) else None,
            str(content.get("action") or ""),
        )
        self._heard(click)
