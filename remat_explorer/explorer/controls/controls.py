"""What to explore and how to solve it: model, budget and buttons in one row, and every other choice under "More"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ipywidgets as w

from remat_explorer.errors import QuantityError, SolverError
from remat_explorer.explorer.controls.control_texts import (
    HIDDEN,
    TOOLTIPS,
    batch_text,
    beyond_usual,
    button_reasons,
    devices,
    image_text,
    parse_batch,
    parse_image,
    parse_limit,
)
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import ONLY_CHAINS, describe_strategy, unsuitable_strategies
from remat_explorer.solvers import BACKENDS, STRATEGIES
from remat_explorer.solvers.options import default_options, read_options, write_options
from remat_explorer.solvers.table_one import row

WAYS = ("none", "exact", "all", "chosen")
MORE = "Batch, device, costs, implementations, strategy and limits"
READ: dict[str, Callable[[str], Any]] = {"batch": parse_batch, "image": parse_image, "time_limit": parse_limit}
WRITTEN: dict[str, Callable[[Any], str]] = {
    "batch": batch_text,
    "image": image_text,
    "options": write_options,
    "time_limit": "{:g}".format,
}
COSTS = (("at Execute", None), ("measured", True), ("estimated", False))


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
    """Keeps the fields and the state's choices together.

    Args:
        state: whose choices they are.
        actions: what the buttons call.
        models: what there is to choose from.
        beside: what stands between the model and the buttons: the budget.
    """

    def __init__(self, state: State, actions: Actions, models: Models, beside: Sequence[Any] = ()) -> None:
        self._state, self._actions, self._models = state, actions, models
        self._listing = False
        number = {"continuous_update": False}
        self._fields: dict[str, tuple[str, Any, int]] = {
            "model": ("Model", w.Dropdown(options=_with(models.names(), state.model)), 118),
            "batch": ("Batch", w.Text(placeholder="none", **number), 54),
            "image": ("Image", w.Text(placeholder="none", **number), 60),
            "device": ("Device", w.Dropdown(options=devices(state)), 60),
            "measured_costs": ("Costs", w.Dropdown(options=COSTS), 96),
            "implementations": ("Implementations", w.Dropdown(options=WAYS), 98),
            "strategy": ("Strategy", w.Dropdown(options=_with(list(STRATEGIES), state.strategy)), 176),
            "options": ("Options", w.Text(**number), 110),
            "solver": ("Solver", w.Dropdown(options=_with(list(BACKENDS), state.solver)), 66),
            "time_limit": ("Limit (s)", w.Text(**number), 54),
        }
        for name, (_, field, _) in self._fields.items():
            field.tooltip = TOOLTIPS[name]
            self._bind(name, field)
        self.refresh = self._button("", "refresh", self._look_again, "", TOOLTIPS["refresh"], "28px")
        self.solve = self._button("Solve", "play", actions.solve, "primary")
        self.cancel = self._button("Cancel", "stop", actions.cancel, "", width="82px")
        self.more = w.ToggleButton(description="More", icon="sliders", layout=w.Layout(width="90px", flex="0 0 auto"))
        self.more.observe(lambda change: setattr(state, "more", change["new"]), "value")
        self.execute = self._button("Execute", "bolt", actions.execute, "success", width="86px")
        buttons = [self.cancel, self.solve, self.execute, self.more]
        pressed = w.HBox(buttons, layout=w.Layout(margin="17px 0 0 auto", flex="0 0 auto"))
        model, *others = [_labelled(*field) for field in self._fields.values()]
        self.refresh.layout.margin, self.refresh.layout.padding = "17px 6px 0 -4px", "0"
        wrapped = {"flex_flow": "row wrap", "align_items": "flex-start"}
        self._others = w.HBox([*others, self.refresh], layout=w.Layout(**wrapped)).add_class("remat-more")
        first = w.HBox([model, *beside, pressed], layout=w.Layout(**wrapped))
        self.widget = w.VBox([first, self._others])
        self.widget.add_class("remat-controls")
        state.observe(self._show_more, ["more", *HIDDEN, "graph"])
        state.observe(self._explain_strategy, ["strategy", "graph"])
        state.observe(self._list_strategies, "graph")
        state.observe(lambda change: self._list("device", devices(state)), "inputs")
        state.observe(self._enable, ["busy", "improving", "graph", "solution", "no_execution", "model"])
        self._list_strategies()
        self._explain_strategy()
        self._enable()
        self._show_more()

    def _show_more(self, change: Any = None) -> None:
        """The other fields, and where they are hidden a mark that some choice is not the usual one."""
        state, unusual = self._state, beyond_usual(self._state)
        self.more.value = state.more
        self._others.layout.display = None if state.more else "none"
        self.more.description = "More •" if unusual and not state.more else "More"
        self.more.tooltip = MORE if state.more or not unusual else f"{MORE}. Changed: {', '.join(unusual)}"

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

    def _list_strategies(self, change: Any = None) -> None:
        """Every strategy; beside those that are not for the graph it says so, and the page disables them."""
        graph = self._state.graph
        refused = (
            {name for name, fit in unsuitable_strategies(graph).items() if fit.is_refused} if graph is not None else ()
        )
        names = [
            (f"{name} · {ONLY_CHAINS}" if name in refused else describe_strategy(name), name) for name in STRATEGIES
        ]
        self._list("strategy", names)

    def _look_again(self) -> None:
        """List model files anew, and load the chosen model again."""
        self._list("model", _with(self._models.names(), self._state.model))
        self._actions.load()

    def _list(self, name: str, options: Sequence[Any]) -> None:
        """Offer these; the choice stays."""
        field = self._fields[name][1]
        if tuple(options) != tuple(field.options):
            self._listing = True  # a new list selects its first entry, which nobody chose
            field.options = options
            _show(name, field, getattr(self._state, name))
            self._listing = False

    def _button(
        self, text: str, icon: str, action: Any, style: str, tooltip: str = "", width: str = "74px"
    ) -> w.Button:
        layout = w.Layout(width=width, flex="0 0 auto")
        button = w.Button(description=text, icon=icon, button_style=style, tooltip=tooltip, layout=layout)
        button.on_click(lambda clicked: action())
        return button

    def _explain_strategy(self, change: Any = None) -> None:
        state = self._state
        chosen = STRATEGIES.get(state.strategy)  # scripts may choose what is not there, and hear so by solving
        fit = unsuitable_strategies(state.graph).get(state.strategy) if state.graph is not None else None
        tooltip = row(chosen).describe() if chosen else TOOLTIPS["strategy"]
        self._fields["strategy"][1].tooltip = f"{fit.reason}. {tooltip}" if fit else tooltip
        defaults = default_options(chosen) if chosen else {}
        defaults.pop("implementations", None)  # they have a field of their own
        field = self._fields["options"][1]
        field.disabled, field.placeholder = not defaults, write_options(defaults) or "none"
        field.tooltip = "This strategy has no options"
        if defaults:
            field.tooltip = f"{TOOLTIPS['options']} Defaults: {write_options(defaults)}"

    def _enable(self, change: Any = None) -> None:
        state = self._state
        for name, (reason, tooltip) in button_reasons(state).items():
            button = getattr(self, name)
            button.disabled, button.tooltip = bool(reason), reason or tooltip
        self.cancel.layout.visibility = "hidden" if self.cancel.disabled else "visible"  # its room is kept
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
    with field.layout.hold_sync():  # another one would leave the first open
        field.layout.width, field.layout.height = f"{width}px", "auto"
        field.layout.margin, field.layout.flex = "0 6px 0 0", "0 0 auto"
    return field.add_class("remat-named")


def _show(name: str, field: Any, value: Any) -> None:
    """Scripts may choose what the list does not have, such as "cuda:1"."""
    options = getattr(field, "options", None)
    if options is not None and tuple(options) == WAYS and not isinstance(value, str):
        value = "chosen"
    offered = [entry[1] if isinstance(entry, tuple) else entry for entry in options or ()]
    if options and isinstance(value, str) and value not in offered:
        field.options = [*options, (value, value) if isinstance(options[0], tuple) else value]
    field.value = WRITTEN[name](value) if isinstance(field, w.Text) else value
