"""What to explore and how to solve it: one row of fields, and the buttons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import ipywidgets as w

from remat_explorer.errors import QuantityError, SolverError
from remat_explorer.explorer.controls.control_texts import (
    TOOLTIPS,
    batch_text,
    button_reasons,
    devices,
    image_text,
    parse_batch,
    parse_image,
    parse_limit,
)
from remat_explorer.explorer.state.state import State
from remat_explorer.solvers import BACKENDS, STRATEGIES
from remat_explorer.solvers.options import default_options, read_options, write_options
from remat_explorer.solvers.table_one import row

WAYS = ("none", "exact", "all", "chosen")
READ: dict[str, Callable[[str], Any]] = {"batch": parse_batch, "image": parse_image, "time_limit": parse_limit}
WRITTEN: dict[str, Callable[[Any], str]] = {
    "batch": batch_text,
    "image": image_text,
    "options": write_options,
    "time_limit": "{:g}".format,
}
COSTS = (("measured", True), ("estimated", False))


class Actions(Protocol):
    """What the buttons call."""

    def load(self) -> None: ...
    def solve(self) -> None: ...
    def cancel(self) -> None: ...
    def execute(self) -> None: ...


class Models(Protocol):
    """What there is to choose from."""

    def names(self) -> list[str]: ...
    def has_sizes(self, name: str) -> bool: ...


class Controls:
    """Keeps the fields and the state's choices together."""

    def __init__(self, state: State, actions: Actions, models: Models) -> None:
        self._state, self._actions, self._models = state, actions, models
        self._listing = False
        number = {"continuous_update": False}
        self._fields: dict[str, tuple[str, Any, int]] = {
            "model": ("Model", w.Dropdown(options=_with(models.names(), state.model)), 106),
            "batch": ("Batch", w.Text(placeholder="none", **number), 54),
            "image": ("Image", w.Text(placeholder="none", **number), 60),
            "device": ("Device", w.Dropdown(options=devices(state)), 60),
            "measured_costs": ("Costs", w.Dropdown(options=COSTS), 90),
            "implementations": ("Implementations", w.Dropdown(options=WAYS), 92),
            "strategy": ("Strategy", w.Dropdown(options=_with(list(STRATEGIES), state.strategy)), 112),
            "options": ("Options", w.Text(**number), 62),
            "solver": ("Solver", w.Dropdown(options=_with(list(BACKENDS), state.solver)), 66),
            "time_limit": ("Limit (s)", w.Text(**number), 54),
        }
        for name, (_, field, _) in self._fields.items():
            field.tooltip = TOOLTIPS[name]
            self._bind(name, field)
        self.refresh = self._button("", "refresh", self._look_again, "", TOOLTIPS["refresh"], "28px")
        self.solve = self._button("Solve", "play", actions.solve, "primary")
        self.cancel = self._button("Cancel", "stop", actions.cancel, "", width="82px")
        self.execute = self._button("Execute", "bolt", actions.execute, "success", width="86px")
        buttons = w.HBox(
            [self.solve, self.cancel, self.execute], layout=w.Layout(margin="17px 0 0 auto", flex="0 0 auto")
        )
        columns = [_labelled(*field) for field in self._fields.values()]
        self.refresh.layout.margin, self.refresh.layout.padding = "17px 6px 0 -4px", "0"
        self.widget = w.HBox([columns[0], self.refresh, *columns[1:], buttons], layout=w.Layout(flex_flow="row wrap"))
        self.widget.add_class("remat-controls")
        state.observe(self._explain_strategy, "strategy")
        state.observe(lambda change: self._list("device", devices(state)), "inputs")
        state.observe(self._enable, ["busy", "improving", "graph", "solution", "no_execution", "model"])
        self._explain_strategy()
        self._enable()

    def _bind(self, name: str, field: Any) -> None:
        state = self._state
        _show(name, field, getattr(state, name))
        field.observe(lambda change: self._take(name, field, change["new"]), "value")
        state.observe(lambda change: _show(name, field, change["new"]), name)

    def _take(self, name: str, field: Any, entered: Any) -> None:
        """What was entered goes to the state; what cannot be read is said, and the field shows the state again."""
        state = self._state
        if self._listing:
            return
        if entered == "chosen":  # begin with what may be chosen now
            entered = state.implementations if isinstance(state.implementations, tuple) else state.kinds
        if isinstance(field, w.Text):
            if entered == WRITTEN[name](getattr(state, name)):
                return
            try:
                entered = READ[name](entered) if name in READ else self._read_options(entered)
            except (QuantityError, SolverError) as error:
                state.refuse(str(error))
                _show(name, field, getattr(state, name))
                return
        state.accept()
        setattr(state, name, entered)
        _show(name, field, getattr(state, name))

    def _read_options(self, text: str) -> dict[str, Any]:
        strategy = self._state.strategy
        return read_options(text, strategy, STRATEGIES[strategy]) if strategy in STRATEGIES else {}

    def _look_again(self) -> None:
        """List model files anew, and load the chosen model again."""
        self._list("model", _with(self._models.names(), self._state.model))
        self._actions.load()

    def _list(self, name: str, options: list[str]) -> None:
        """Offer these; the choice stays."""
        field = self._fields[name][1]
        if tuple(options) != tuple(field.options):
            self._listing = True  # a new list selects its first entry, which nobody chose
            field.options, field.value = options, getattr(self._state, name)
            self._listing = False

    def _button(
        self, text: str, icon: str, action: Any, style: str, tooltip: str = "", width: str = "74px"
    ) -> w.Button:
        layout = w.Layout(width=width, flex="0 0 auto")
        button = w.Button(description=text, icon=icon, button_style=style, tooltip=tooltip, layout=layout)
        button.on_click(lambda clicked: action())
        return button

    def _explain_strategy(self, change: Any = None) -> None:
        chosen = STRATEGIES.get(self._state.strategy)  # scripts may choose what is not there, and hear so by solving
        self._fields["strategy"][1].tooltip = row(chosen).describe() if chosen else TOOLTIPS["strategy"]
        defaults = default_options(chosen) if chosen else {}
        defaults.pop("implementations", None)  # they have a field of their own
        field = self._fields["options"][1]
        field.disabled, field.placeholder = not defaults, write_options(defaults) or "none"
        field.tooltip = "This strategy has no options"
        if defaults:
            field.tooltip = f"{TOOLTIPS['options']} Without being given: {write_options(defaults)}"

    def _enable(self, change: Any = None) -> None:
        state = self._state
        for name, (reason, tooltip) in button_reasons(state).items():
            button = getattr(self, name)
            button.disabled, button.tooltip = bool(reason), reason or tooltip
        has_sizes = self._models.has_sizes(state.model)
        for name in ("batch", "image"):
            field = self._fields[name][1]
            field.disabled = not has_sizes
            field.tooltip = TOOLTIPS[name] if has_sizes else "A model of your own has its inputs already"
        costs, is_graph = self._fields["measured_costs"][1], state.graph is not None and state.inputs is None
        costs.disabled = is_graph
        costs.tooltip = "A graph without a module has its costs already" if is_graph else TOOLTIPS["measured_costs"]


def _with(names: list[str], chosen: str) -> list[str]:
    return names if chosen in names else [chosen, *names]


def _labelled(text: str, field: Any, width: int) -> Any:
    """The field under its name."""
    field.description = text
    field.layout = w.Layout(width=f"{width}px", height="auto", margin="0 6px 0 0", flex="0 0 auto")
    return field.add_class("remat-named")


def _show(name: str, field: Any, value: Any) -> None:
    """Scripts may choose what the list does not have, such as "cuda:1"."""
    options = getattr(field, "options", None)
    if options is not None and tuple(options) == WAYS and not isinstance(value, str):
        value = "chosen"
    if options and isinstance(value, str) and value not in options:
        field.options = [*options, value]
    field.value = WRITTEN[name](value) if isinstance(field, w.Text) else value
