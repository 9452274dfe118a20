"""What the panels beside the plots share: HTML whose names, rows and buttons can be clicked, and a base class.

`SidePanel` draws itself only while it is looked at. Every text in the pieces of HTML here is escaped here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import traitlets as t

from remat_explorer.explanations import Mention, Words
from remat_explorer.explorer.page_widget import PageWidget
from remat_explorer.explorer.state.state import State
from remat_explorer.figures import Theme
from remat_explorer.figures.palette import palette

COLOURS = (
    *("forward", "backward", "recompute", "sent", "kept", "resident", "gradients"),
    *("predicted", "measured", "budget", "over", "cursor", "grid"),
)
PLACE = re.compile("\ue000(\\w+)\ue001")  # characters that no text of a model has a use for
HERE = Path(__file__).parent


class SidePanel:
    """A panel: `html` of the state, drawn again when one of `traits` has changed and the panel is the chosen one.

    Attributes:
        name: one of `remat_explorer.explorer.state.state.PANELS`.
        traits: what the content depends on.
        content: the widget that shows it.
        widget: the panel, by default the content alone.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    traits: ClassVar[tuple[str, ...]]

    def __init__(self, state: State) -> None:
        self.state = state
        self.content = Clickable(self.clicked, self.title)
        self.widget: Any = self.content
        self._stale = True
        state.observe(self._changed, [*self.traits, "theme"])
        state.observe(self._shown, "panel")
        self._shown()

    def html(self) -> str:
        """The content, its text escaped."""
        raise NotImplementedError

    def scroll(self) -> str:
        """What the scroll position belongs to: where it changes, the panel is shown from its top again."""
        return self.name

    def clicked(self, click: Click) -> None:
        """Select what was clicked."""
        select(self.state, click)

    def _changed(self, change: Any) -> None:
        self._stale = True
        self._shown()

    def _shown(self, change: Any = None) -> None:
        if self._stale and self.state.panel == self.name:
            self._stale = False
            style, scroll = colours(self.state.theme), self.scroll()
            self.content.html = (
                f'<div class="remat-panel {self.name}" data-scroll="{scroll}" style="{style}">{self.html()}</div>'
            )


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

    _esm = HERE / "side_panel.js"
    _css = HERE / "side_panel.css"
    html = t.Unicode("").tag(sync=True)
    label = t.Unicode("").tag(sync=True)
    hovered = t.Int(-1, help="The value whose row is pointed at, or -1.").tag(sync=True)

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


@dataclass(frozen=True)
class Click:
    """What was clicked: a value, a stage, an action, or several of them."""

    value: int | None = None
    stage: int | None = None
    action: str = ""


def text(content: object) -> str:
    """Any text, escaped.

    >>> text('<b> & "c"')
    '&lt;b&gt; &amp; &quot;c&quot;'
    """
    return html.escape(str(content), quote=True)


def data(value: int | None = None, stage: int | None = None, action: str = "") -> str:
    """The attributes by which an element can be clicked.

    >>> data(3, 57), data(action="swap")
    (' data-value="3" data-stage="57"', ' data-action="swap"')
    """
    parts = [("value", value), ("stage", stage), ("action", action or None)]
    return "".join(f' data-{name}="{text(part)}"' for name, part in parts if part is not None)


def link(mention: Mention) -> str:
    """A name that selects a value or a stage.

    >>> link(Mention("conv <1>", value=3))
    '<span class="link" role="button" tabindex="0" data-value="3">conv &lt;1&gt;</span>'
    """
    target = data(mention.value, mention.stage)
    if not target:
        return text(mention.text)
    # no button element, whose text would not break into lines with the sentence around it
    return f'<span class="link" role="button" tabindex="0"{target}>{text(mention.text)}</span>'


def sentence(words: Words) -> str:
    """A sentence with its names as links."""
    return "".join(text(word) if isinstance(word, str) else link(word) for word in words)


def button(label: str, action: str, tooltip: str, enabled: bool = True) -> str:
    """A button that sends an action."""
    off = "" if enabled else " disabled"
    return (
        f'<button type="button" class="action" title="{text(tooltip)}"{data(action=action)}{off}>{text(label)}</button>'
    )


def table(rows: Iterable[Iterable[str]], head: Iterable[str] = (), kind: str = "") -> str:
    """A table; cells are HTML already.

    >>> table([["peak", "3 B"]])
    '<table class=""><tr><td>peak</td><td>3 B</td></tr></table>'
    """
    top = "".join(f"<th>{cell}</th>" for cell in head)
    return f'<table class="{kind}">' + (f"<tr>{top}</tr>" if top else "") + f"{table_rows(rows)}</table>"


def table_rows(rows: Iterable[Iterable[str]]) -> str:
    """Rows of a table; cells are HTML already."""
    return "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)


def place(name: str) -> str:
    """A place in HTML that is written once for several schedules or stages; `fill_places` fills it."""
    return f"\ue000{name}\ue001"


def fill_places(template: str, parts: Mapping[str, str]) -> str:
    """HTML with its places filled; what fills them may have places, too.

    >>> fill_places(f"{place('size')} in {place('where')}", {"size": "3 B", "where": f"stage {place('t')}", "t": "2"})
    '3 B in stage 2'
    """
    while PLACE.search(template):
        template = PLACE.sub(lambda found: parts[found[1]], template)
    return template


def note(content: str) -> str:
    """A sentence in place of content that is not there yet."""
    return f'<p class="note">{text(content)}</p>'


def colours(theme: Theme) -> str:
    """The palette as CSS variables.

    >>> colours("light").split(";")[0]
    '--forward:#56B4E9'
    """
    theme_colours = palette(theme)
    return ";".join(f"--{name}:{getattr(theme_colours, name)}" for name in COLOURS)


def select(state: State, click: Click) -> None:
    """Select the value and the stage of a click; what it does not name stays."""
    if click.value is not None:
        state.value = click.value
    if click.stage is not None:
        state.stage = click.stage


def shown_stage(state: State) -> int:
    """The selected stage; while a new schedule arrives it may be one that the schedule does not have."""
    return min(state.stage, state.schedule.stages - 1) if state.schedule is not None else state.stage
