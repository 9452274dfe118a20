"""Traits that a widget and the state have in common: given to the page, and taken from it.

A message of the page may change several traits, and its answer is drawn from all of them. So they are given and taken
together: one by one, what a view sends after the first would be the old values of the others.
"""

from __future__ import annotations

from collections.abc import Iterable

import ipywidgets as w

from remat_explorer.explorer.state.state import State


def give(state: State, widget: w.Widget, names: Iterable[str]) -> None:
    """Set traits of the widget, in one message; tuples are lists there. None is taken back before all are there."""
    with widget.hold_sync(), widget.hold_trait_notifications():
        for name in names:
            value = getattr(state, name)
            setattr(widget, name, list(value) if isinstance(value, tuple) else value)


def take(state: State, widget: w.Widget, names: tuple[str, ...]) -> None:
    """Set traits of the state to what the page made of them; where the state takes something else, it is given back."""
    with state.at_once():
        for name in names:
            value = getattr(widget, name)
            setattr(state, name, tuple(value) if isinstance(value, list) else value)
    give(state, widget, names)
