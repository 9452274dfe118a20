"""Model, batch, budget and buttons in one row, and every other choice in a second one, which opens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import ipywidgets as w

from remat_explorer.errors import QuantityError, SolverError, shown
from remat_explorer.explorer.controllers.model_sources import DEFAULT_SIZES
from remat_explorer.explorer.state.implementation_choices import NONE
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import (
    ONLY_CHAINS,
    describe_strategy,
    strategy_groups,
    unsuitable_strategies,
)
from remat_explorer.graph import cost_unit
from remat_explorer.offload import LINKS, Transfers
from remat_explorer.quantities import format_rate
from remat_explorer.solvers import (
    BACKENDS,
    STRATEGIES,
    default_options,
    default_strategy,
    read_options,
    table_one_row,
    write_options,
)

MOST_EXAMPLES = 100_000
MOST_SECONDS = 1_000_000
TOOLTIPS = {
    "model": "What to explore: a model of the zoo, your own, or a file of this folder that defines make_model",
    "refresh": "Look for model files again, and load the chosen model again as it is now",
    "batch": "Examples in a batch; activations grow with it; leave it empty for a suitable size",
    "image": 'Pixels: "64", or height and width: "416x608"; leave it empty for a suitable size',
    "device": "Where costs are measured and schedules are executed",
    "measured_costs": "Estimate costs from published rates, or time each operation on the device: at once, or when a "
    "schedule is run. Measuring also finds the workspace",
    "implementations": "Other ways to compute operations that the schedule may choose: none; exact, whose results are "
    "equal bit for bit; or all. The row above the picture switches each kind on or off",
    "strategy": "How schedules are found",
    "transfers": 'Values may be sent to the host and fetched back: over a link such as pcie4, or at "25 GB/s", '
    '"25 GB/s out, 20 GB/s back". Leave it empty, and nothing is sent',
    "options": "Options of the strategy: NAME=VALUE, with commas between them.",
    "solver": "Back end for linear and integer programs",
    "time_limit": "Seconds that a solve may take",
}
OTHER_METHODS = "Show the schedules of all strategies on the curve, not only the best ones"
FIRST = ("model", "batch")  # fields of the first row
HIDDEN = ("device", "measured_costs", "implementations", "strategy", "transfers", "options", "solver", "time_limit")
RATES = (0.0, 3.0)  # powers of ten of GB/s that the slider reaches over
WAYS = ("none", "exact", "all", "chosen")
MORE = "Strategy, limits, device, costs, implementations, other methods; present, save"
COSTS = (("when it is run", None), ("measured", True), ("estimated", False))


class Controls:
    """Keeps the fields and the state's choices together.

    Args:
        state: whose choices they are.
        actions: what the buttons call.
        models: what there is to choose from.
        budget: the field of the budget.
        tools: what stands behind the other choices.
    """

    def __init__(
        self, state: State, actions: Actions, models: Models, budget: Any = None, tools: Sequence[Any] = ()
    ) -> None:
        self._state, self._actions, self._models = state, actions, models
        self._listing = False
        number = {"continuous_update": False}
        self._fields: dict[str, tuple[str, Any, int]] = {
            "model": ("Model", w.Dropdown(options=_with(models.names(), state.model)), 150),
            "batch": ("Batch", w.Text(placeholder="none", **number), 84),
            "image": ("Image", w.Text(placeholder="none", **number), 60),
            "device": ("Device", w.Dropdown(options=devices(state)), 60),
            "measured_costs": ("Costs", w.Dropdown(options=COSTS), 96),
            "implementations": ("Implementations", w.Dropdown(options=WAYS), 98),
            "strategy": ("Strategy", w.Dropdown(options=_with(list(STRATEGIES), state.strategy)), 176),
            "transfers": ("Send away", w.Combobox(options=[*LINKS, "25 GB/s"], placeholder="nothing", **number), 104),
            "options": ("Options", w.Text(**number), 110),
            "solver": ("Solver", w.Dropdown(options=_with(list(BACKENDS), state.solver)), 66),
            "time_limit": ("Limit (s)", w.Text(**number), 54),
        }
        for name, (_, field, _) in self._fields.items():
            field.tooltip = TOOLTIPS[name]
            field.add_class(f"remat-list-{name}")
            self._bind(name, field)
        self.refresh = self._button("", "refresh", self._look_again, "", TOOLTIPS["refresh"], "28px")
        self.solve = self._button("Find the best", "", actions.solve, "primary", width="116px")
        self.more = w.ToggleButton(description="⋯", layout=w.Layout(width="48px", padding="0", flex="0 0 auto"))
        self.more.observe(lambda change: setattr(state, "more", change["new"]), "value")
        self.execute = self._button("Run it", "", actions.execute, "success", width="72px")
        self.methods = w.ToggleButton(
            description="Other methods", tooltip=OTHER_METHODS, layout=w.Layout(width="116px")
        )
        w.link((state, "methods"), (self.methods, "value"))
        pressed = w.HBox([self.solve, self.execute, self.more], layout=w.Layout(margin="0 0 0 auto", flex="0 0 auto"))
        labelled = {name: _labelled(*field) for name, field in self._fields.items()}
        first, others = [labelled.pop(name) for name in FIRST], labelled.values()
        self.refresh.layout.margin, self.refresh.layout.padding = "17px 6px 0 -4px", "0"
        for tool in (self.methods, *tools):
            tool.layout.margin = "17px 4px 0 0"
        wrapped = {"flex_flow": "row wrap", "align_items": "flex-start"}
        self._others = w.HBox([*others, self.refresh, self.methods, *tools], layout=w.Layout(**wrapped))
        self._others.add_class("remat-more")
        self.bandwidth = w.FloatLogSlider(base=10, step=0.02, readout_format=".3g", continuous_update=False)
        self.bandwidth.tooltip = "How fast values travel to the host and back; what is known is shown at once"
        self.bandwidth.style.description_width = "initial"
        self.bandwidth.layout.width = "230px"
        self.bandwidth.add_class("remat-bandwidth")
        self.bandwidth.observe(self._take_bandwidth, "value")
        shown = [*first, *([] if budget is None else [budget]), self.bandwidth, pressed]
        first = w.HBox(shown, layout=w.Layout(flex_flow="row wrap", align_items="center")).add_class("remat-first")
        self.widget = w.VBox([first, self._others])
        self.widget.add_class("remat-controls")
        state.observe(self._show_more, ["more", *HIDDEN, "graph"])
        state.observe(self._explain_strategy, ["strategy", "graph"])
        state.observe(self._show_bandwidth, ["transfers", "graph"])
        state.observe(self._list_strategies, "graph")
        state.observe(lambda change: self._list("device", devices(state)), "inputs")
        state.observe(self._enable, ["busy", "graph", "solution", "no_execution", "model"])
        self._list_strategies()
        self._explain_strategy()
        self._show_bandwidth()
        self._enable()
        self._show_more()

    def _show_more(self, change: Any = None) -> None:
        """The other fields, and where they are hidden a mark that some choice is not the usual one."""
        state, unusual = self._state, changed_hidden_fields(self._state)
        self.more.value = state.more
        self._others.layout.display = None if state.more else "none"
        self.more.description = "⋯ •" if unusual and not state.more else "⋯"
        self.more.tooltip = MORE if state.more or not unusual else f"{MORE}. Changed: {', '.join(unusual)}"

    def _show_bandwidth(self, change: Any = None) -> None:
        """The slider of the bandwidth, where values may be sent."""
        transfers, slider = self._state.transfers, self.bandwidth
        slow = 0 if transfers is None else min(transfers.out, transfers.back)
        slider.layout.display = None if 0 < slow < math.inf else "none"
        if 0 < slow < math.inf:
            rate = slow / self._rate_unit
            slider.description = "GB/s" if self._rate_unit > 1 else "B a unit"
            with slider.hold_trait_notifications():
                slider.min = min(RATES[0], math.floor(math.log10(rate)))
                slider.max = max(RATES[1], math.ceil(math.log10(rate)))
                slider.value = rate

    @property
    def _rate_unit(self) -> float:
        graph = self._state.graph
        return 1.0 if graph is not None and not cost_unit(graph) else 1e9

    def _take_bandwidth(self, change: Any) -> None:
        transfers, rate = self._state.transfers, change["new"] * self._rate_unit
        slow = 0 if transfers is None else min(transfers.out, transfers.back)
        if transfers is not None and 0 < slow < math.inf and not math.isclose(rate, slow, rel_tol=1e-6):
            rate = float(f"{rate:.3g}")
            faster = {way: getattr(transfers, way) * rate / slow for way in ("out", "back")}
            self._state.transfers = replace(transfers, **faster)

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
            (f"{name} · {ONLY_CHAINS}" if name in refused else describe_strategy(name), name)
            for group in strategy_groups().values()
            for name in group
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
        tooltip = table_one_row(chosen).describe() if chosen else TOOLTIPS["strategy"]
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
        has_sizes = self._models.has_sizes(state.model)
        for name in ("batch", "image"):
            field = self._fields[name][1]
            field.disabled = not has_sizes
            usual = DEFAULT_SIZES.get(state.model, {}) if has_sizes else {}
            field.placeholder = str(usual.get(name, "none"))  # until it is loaded
            field.tooltip = TOOLTIPS[name] if has_sizes else "A model of your own has its inputs already"
        costs, is_graph = self._fields["measured_costs"][1], state.graph is not None and state.inputs is None
        costs.disabled = is_graph
        costs.tooltip = "A graph without a module has its costs already" if is_graph else TOOLTIPS["measured_costs"]


def changed_hidden_fields(state: State) -> list[str]:
    """What was chosen in fields that are usually hidden, and is not as the explorer begins.

    >>> changed_hidden_fields(State()), changed_hidden_fields(State(strategy="dtr", time_limit=5))
    ([], ['strategy dtr', 'limit 5 s'])
    """
    usual = "optimal" if state.graph is None else default_strategy(state.graph)
    said = {
        "device": "" if state.device == "cpu" else f"device {state.device}",
        "measured_costs": {None: "", True: "measured costs", False: "estimated costs"}[state.measured_costs],
        "implementations": "" if state.implementations == NONE else "implementations",
        "strategy": "" if state.strategy == usual else f"strategy {state.strategy}",
        "transfers": "" if state.transfers is None else f"sends at {format_transfers(state.transfers)}",
        "options": "options" if state.options else "",
        "solver": "" if state.solver == "highs" else f"solver {state.solver}",
        "time_limit": "" if state.time_limit == 60 else f"limit {state.time_limit:g} s",
    }
    return [words for words in said.values() if words]


def executes_after_measuring(state: State) -> bool:
    """Whether a run begins by measuring costs."""
    return state.measured_costs is None and not state.costs_are_measured and state.inputs is not None


def button_reasons(state: State) -> dict[str, tuple[str, str]]:
    """For each button why it is disabled, or "", and what it does.

    >>> button_reasons(State(busy="solving"))["execute"][0]
    'Wait until solving is done, or cancel it'
    """
    wait = f"Wait until {state.busy} is done, or cancel it" if state.busy else ""
    no_graph = "" if state.graph is not None else "There is no model yet"
    found = state.solution or state.sending
    no_solution = "" if found is not None else "There is no schedule to run yet: find one first"
    return {
        "refresh": ("", TOOLTIPS["refresh"]),
        "solve": (wait or no_graph, "Look for the cheapest schedule within the budget by the chosen strategy"),
        "execute": (
            wait or state.no_execution or no_solution,
            "Run the schedule on the screen, and measure memory, time and gradients"
            + ("; costs and workspace are measured then" if executes_after_measuring(state) else ""),
        ),
    }


def format_image(image: int | tuple[int, int] | None) -> str:
    """An image size as the field shows it.

    >>> format_image((416, 608)), format_image(64), format_image(None)
    ('416x608', '64', '')
    """
    return "x".join(map(str, image)) if isinstance(image, tuple) else str(image or "")


def parse_image(text: str) -> int | tuple[int, int] | None:
    """An image size from the field: "64", "416x608", or nothing.

    Raises:
        QuantityError: if it is none of these.

    >>> parse_image("64"), parse_image("416 x 608"), parse_image(" ")
    (64, (416, 608), None)
    """
    sides = text.replace("×", "x").replace(",", "x").split("x") if text.strip() else []
    try:
        pixels = [int(side) for side in sides]
    except ValueError:
        pixels = [0]
    if len(pixels) > 2 or any(side < 1 for side in pixels):
        raise QuantityError(f'{shown(text)} is not an image size; write pixels: "64", or height and width: "416x608"')
    return None if not pixels else pixels[0] if len(pixels) == 1 else (pixels[0], pixels[1])


def format_batch(batch: int) -> str:
    """A batch size as the field shows it; nothing where the model's own is taken.

    >>> format_batch(32), format_batch(0)
    ('32', '')
    """
    return str(batch or "")


def parse_batch(text: str) -> int:
    """A batch size from the field; nothing for a size to begin with.

    Raises:
        QuantityError: if it is not a whole number from 1 to `MOST_EXAMPLES`.

    >>> parse_batch(" 32"), parse_batch("")
    (32, 0)
    >>> parse_batch("1e99")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.QuantityError: '1e99' is not a batch size; write a whole number from 1 to 100000
    """
    digits = text.strip()
    if not digits:
        return 0
    if not (digits.isdecimal() and len(digits) <= 6 and 1 <= int(digits) <= MOST_EXAMPLES):
        raise QuantityError(f"{shown(text)} is not a batch size; write a whole number from 1 to {MOST_EXAMPLES}")
    return int(digits)


def format_transfers(transfers: Transfers | None) -> str:
    """What may be sent, as the field shows it: a link by its name.

    >>> format_transfers(Transfers.of("pcie4")), format_transfers(Transfers(25e9, 25e9)), format_transfers(None)
    ('pcie4', '25 GB/s', '')
    """
    if transfers is None:
        return ""
    names = (name for name in LINKS if Transfers.of(name) == transfers)
    plain = Transfers(transfers.out, transfers.out) == transfers
    return next(names, format_rate(transfers.out) if plain else transfers.describe())


def parse_transfers(text: str) -> Transfers | None:
    """What may be sent, from the field; nothing for none.

    Raises:
        QuantityError: if it is neither a link nor a bandwidth.
    """
    return Transfers.of(text) if text.strip() else None


def parse_limit(text: str) -> float:
    """A time limit from the field, in seconds.

    Raises:
        QuantityError: if it is not a number from 0 to `MOST_SECONDS`.

    >>> parse_limit("2.5")
    2.5
    >>> parse_limit("1 min")
    Traceback (most recent call last):
        ...
    remat_explorer.errors.QuantityError: '1 min' is not a time limit; write seconds from 0 to 1000000: "60"
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MOST_SECONDS:
        raise QuantityError(f'{shown(text)} is not a time limit; write seconds from 0 to {MOST_SECONDS}: "60"')
    return seconds


def devices(state: State) -> list[str]:
    """The devices to choose from: the CPU, the one already chosen, and the GPU where there is one.

    A GPU is looked for when a module has been loaded: importing torch takes seconds, for which no screen should wait.
    """
    names = ["cpu"]
    if state.inputs is not None:
        import torch

        names += ["cuda"] if torch.cuda.is_available() else []
    return names if state.device in names else [*names, state.device]


READ: dict[str, Callable[[str], Any]] = {
    "batch": parse_batch,
    "image": parse_image,
    "time_limit": parse_limit,
    "transfers": parse_transfers,
}


WRITTEN: dict[str, Callable[[Any], str]] = {
    "batch": format_batch,
    "image": format_image,
    "options": write_options,
    "time_limit": "{:g}".format,
    "transfers": format_transfers,
}


class Actions(Protocol):
    """What the buttons call."""

    def load(self) -> None: ...
    def solve(self) -> None: ...
    def execute(self) -> None: ...


class Models(Protocol):
    """What there is to choose from."""

    def names(self) -> list[str]: ...
    def has_sizes(self, name: str) -> bool: ...


def _with(names: list[str], chosen: str) -> list[str]:
    return names if chosen in names else [chosen, *names]


def _labelled(text: str, field: Any, width: int) -> Any:
    """The field with its name, which stands over it in the second row and before it in the first."""
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
