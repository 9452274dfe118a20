"""Widgets of the explorer's page: modules that hear the kernel even where the page was slow to open, and their end.

ipywidgets keeps every widget until it is closed, and closing one leaves its layout, its style and its children open.

`push_traits` and `pull_traits` are for traits that widget and state have in common. A message of the page may change
several, and its answer is drawn from all of them: one by one, what a view sends after the first would be the old values
of the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import anywidget
import ipywidgets as w
import traitlets as t

from remat_explorer.explorer.state.state import State

LATE_CONNECTION = Path(__file__).parent / "page_widget.js"
DEFAULT_EXPORT = "export default "
PACKAGE = __name__.rpartition(".")[0]


class PageWidget(anywidget.AnyWidget):
    """What the explorer's own widgets are: `_esm` and `_css` are a text or a file.

    anywidget would have a file tell every widget when it changes, so that none is ever freed.

    Attributes:
        module: the text of `_esm` without `page_widget.js`, for a page that has no kernel.
        probed: changed by the page, by which it finds its model.
    """

    module: ClassVar[str]
    probed = t.Bool(False).tag(sync=True)

    def __init_subclass__(cls, **named: Any) -> None:
        given = cls.__dict__.get("_esm")
        if isinstance(given, str | Path):  # of an instance, anywidget makes it a trait in a class of its own
            cls.module = given.read_text(encoding="utf-8") if isinstance(given, Path) else given
            cls._esm = with_late_connection(cls.module)
        if isinstance(cls.__dict__.get("_css"), Path):
            cls._css = cls.__dict__["_css"].read_text(encoding="utf-8")
        super().__init_subclass__(**named)


def with_late_connection(module: str) -> str:
    """A module of a widget with what lets it hear the kernel where anywidget has given up.

    Args:
        module: JavaScript with one default export; its widget needs the trait ``probed``.

    Raises:
        ValueError: if there is none, or more than one.

    >>> "const offered = { render };" in with_late_connection("export default { render };")
    True
    """
    before, *after = module.split(DEFAULT_EXPORT)
    if len(after) != 1:
        raise ValueError(f"a widget's module has one default export, and this one has {len(after)}: {module[:60]!r}")
    return f"{before}const offered = {after[0]}\n{LATE_CONNECTION.read_text(encoding='utf-8')}"


def close_widgets(*owners: Any) -> None:
    """Close widgets with all that they are made of, and what views keep beside the page.

    Args:
        owners: widgets, or objects of the explorer whose attributes are looked through.

    >>> box = w.HBox([w.Label("a")])
    >>> close_widgets(box)
    >>> box.comm, box.layout.comm, box.children[0].comm
    (None, None, None)
    """
    seen: dict[int, Any] = {}
    waiting = list(owners)
    while waiting:
        owner = waiting.pop()
        if id(owner) in seen:
            continue
        seen[id(owner)] = owner
        is_widget = isinstance(owner, w.Widget)
        if is_widget or (type(owner).__module__.startswith(PACKAGE) and not isinstance(owner, t.HasTraits)):
            waiting += vars(owner).values()  # of a widget, also the values of its traits
        elif isinstance(owner, dict):
            waiting += owner.values()
        elif isinstance(owner, list | tuple):
            waiting += owner
    for owner in seen.values():
        if isinstance(owner, w.Widget):
            w.Widget.close(owner)


def push_traits(state: State, widget: w.Widget, names: Iterable[str]) -> None:
    """Set traits of the widget, in one message; tuples are lists there. None is taken back before all are there."""
    with widget.hold_sync(), widget.hold_trait_notifications():
        for name in names:
            value = getattr(state, name)
            setattr(widget, name, list(value) if isinstance(value, tuple) else value)


def pull_traits(state: State, widget: w.Widget, names: tuple[str, ...]) -> None:
    """Set traits of the state to what the page made of them; where the state takes something else, it is given back."""
    with state.at_once():
        for name in names:
            value = getattr(widget, name)
            setattr(state, name, tuple(value) if isinstance(value, list) else value)
    push_traits(state, widget, names)
