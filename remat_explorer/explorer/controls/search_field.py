"""The search: a field, how many operations it finds, and the way from one to the next."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets as w

from remat_explorer.errors import QuantityError
from remat_explorer.explorer.state.navigation import parse_search
from remat_explorer.explorer.state.state import State

HINT = (
    "Find operations by name, pass and size of the largest output; all words must match: conv backward >10MiB. "
    "Enter goes to the next one."
)


class SearchField:
    """Keeps field, counter and the state's `search` and `found` together."""

    def __init__(self, state: State) -> None:
        self._state = state
        room = w.Layout(width="204px", flex="0 0 auto")
        self.field = w.Text(placeholder="conv backward >10MiB", description="Search", tooltip=HINT, layout=room)
        self.field.style.description_width = "initial"
        self.counter = w.HTML(layout=w.Layout(width="58px", flex="0 0 auto", margin="0 2px"))
        self.previous = self._button("chevron-up", "Previous operation found (N in the matrices)", -1)
        self.next = self._button("chevron-down", "Next operation found (Enter here, n in the matrices)", 1)
        self.widget = w.HBox([self.field, self.counter, self.previous, self.next], layout=w.Layout(flex="0 0 auto"))
        self.field.value = state.search
        self.field.observe(lambda change: setattr(state, "search", change["new"]), "value")
        self.field.on_msg(self._entered)
        state.observe(lambda change: setattr(self.field, "value", change["new"]), "search")
        state.observe(self._count, ["search", "found", "value"])
        self._count()

    def _button(self, icon: str, tooltip: str, by: int) -> w.Button:
        button = w.Button(icon=icon, tooltip=tooltip, layout=w.Layout(width="26px", flex="0 0 auto", padding="0"))
        button.on_click(lambda clicked: self._state.select_found(by))
        return button

    def _entered(self, field: Any, content: Any, buffers: Any) -> None:
        if content.get("event") == "submit":
            self._state.select_found(1)

    def _count(self, change: Any = None) -> None:
        text, hint = count(self._state)
        self.counter.value = f'<span class="remat-count" title="{html.escape(hint, quote=True)}">{text}</span>'
        self.previous.disabled = self.next.disabled = not self._state.found


def count(state: State) -> tuple[str, str]:
    """How many operations are found and which of them is selected, and that in full.

    >>> import remat_explorer as rx
    >>> count(State(graph=rx.linear(2), search="backward")), count(State(search="> x"))[0]
    (('3 found', '3 operations found'), 'no size')
    """
    try:
        asked = parse_search(state.search)
    except QuantityError as error:
        return "no size", str(error)
    if not asked:
        return "", ""
    total = len(state.found)
    if total == 0:
        return "none", f"no operation matches {state.search!r}"
    selected = int(state.graph.producer[state.value]) if state.graph and state.graph.values else -1
    if selected in state.found:
        at = state.found.index(selected) + 1
        return f"{at} of {total}", f"the operation that writes the selected value is number {at} of {total} found"
    return f"{total} found", f"{total} operation{'' if total == 1 else 's'} found"
