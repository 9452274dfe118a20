"""What to explore and how to solve it: one row of fields, and the buttons."""

from __future__ import annotations

from typing import Any, Protocol

import ipywidgets as w

from remat_explorer.errors import QuantityError
from remat_explorer.explorer.state import State
from remat_explorer.solvers import BACKENDS, STRATEGIES
from remat_explorer.solvers.table_one import row

COSTS = (("measured", True), ("estimated", False))


class Actions(Protocol):
    """What the buttons call."""

    def solve(self) -> None: ...
    def cancel(self) -> None: ...
    def execute(self) -> None: ...


class Controls:
    """Keeps the fields and the state's choices together."""

    def __init__(self, state: State, actions: Actions, models: list[str], from_zoo: bool) -> None:
        self._state = state
        names = models if state.model in models else [state.model, *models]
        fields = {
            "model": ("Model", w.Dropdown(options=names, disabled=not from_zoo), 118),
            "batch": ("Batch", w.BoundedIntText(min=0, max=100_000, disabled=not from_zoo), 62),
            "image": ("Image", w.Text(disabled=not from_zoo, placeholder="none"), 72),
            "device": ("Device", w.Dropdown(options=devices(state)), 70),
            "measured_costs": ("Costs", w.Dropdown(options=COSTS, disabled=bool(state.no_execution)), 100),
            "strategy": ("Strategy", w.Dropdown(options=list(STRATEGIES)), 140),
            "solver": ("Solver", w.Dropdown(options=list(BACKENDS)), 74),
            "time_limit": ("Time limit (s)", w.BoundedFloatText(min=0, max=1e6), 80),
        }
        for name, (_, field, _) in fields.items():
            self._bind(name, field)
        self._strategy = fields["strategy"][1]
        state.observe(self._explain_strategy, "strategy")
        self._explain_strategy()
        self.solve = self._button("Solve", "play", actions.solve, "primary")
        self.cancel = self._button("Cancel", "stop", actions.cancel, "")
        self.execute = self._button("Execute", "bolt", actions.execute, "success")
        buttons = w.HBox(
            [self.solve, self.cancel, self.execute], layout=w.Layout(margin="17px 0 0 auto", flex="0 0 auto")
        )
        columns = [_labelled(*field) for field in fields.values()]
        self.widget = w.HBox([*columns, buttons], layout=w.Layout(flex_flow="row wrap"))
        self.widget.add_class("remat-controls")
        state.observe(self._enable, ["busy", "graph", "solution", "no_execution"])
        self._enable()

    def _bind(self, name: str, field: Any) -> None:
        state = self._state
        field.continuous_update = False
        _show(field, getattr(state, name))
        field.observe(lambda change: self._take(name, field, change["new"]), "value")
        state.observe(lambda change: _show(field, change["new"]), name)

    def _take(self, name: str, field: Any, entered: Any) -> None:
        state = self._state
        if name != "image":
            setattr(state, name, entered)
        elif entered != image_text(state.image):
            try:
                state.image = parse_image(entered)
            except QuantityError as error:
                state.say(str(error), "error")
                field.value = image_text(state.image)

    def _button(self, text: str, icon: str, action: Any, style: str) -> w.Button:
        button = w.Button(
            description=text, icon=icon, button_style=style, layout=w.Layout(width="86px", flex="0 0 auto")
        )
        button.on_click(lambda clicked: action())
        return button

    def _explain_strategy(self, change: Any = None) -> None:
        chosen = STRATEGIES.get(self._state.strategy)  # scripts may choose what is not there, and hear so by solving
        self._strategy.tooltip = row(chosen).describe() if chosen else ""

    def _enable(self, change: Any = None) -> None:
        state = self._state
        self.solve.disabled = bool(state.busy) or state.graph is None
        self.cancel.disabled = not state.busy
        self.execute.disabled = bool(state.busy) or state.solution is None or bool(state.no_execution)
        self.execute.tooltip = state.no_execution or "Run the schedule, and measure memory, time and gradients"


def _labelled(text: str, field: Any, width: int) -> w.VBox:
    field.layout = w.Layout(width=f"{width}px", margin="0")
    label = w.Label(text, layout=w.Layout(height="17px", margin="0"))
    return w.VBox([label, field], layout=w.Layout(margin="0 8px 0 0", flex="0 0 auto"))


def _show(field: Any, value: Any) -> None:
    """Scripts may choose what the list does not have, such as "cuda:1"."""
    options = getattr(field, "options", None)
    if options and isinstance(value, str) and value not in options:
        field.options = [*options, value]
    field.value = value if isinstance(value, str) or not isinstance(field, w.Text) else image_text(value)


def image_text(image: int | tuple[int, int] | None) -> str:
    """An image size as the field shows it.

    >>> image_text((416, 608)), image_text(64), image_text(None)
    ('416x608', '64', '')
    """
    return "x".join(map(str, image)) if isinstance(image, tuple) else str(image or "")


def parse_image(text: str) -> int | tuple[int, int] | None:
    """An image size from the field: "64", "416x608", or nothing.

    Raises:
        QuantityError: if it is none of these.
    """
    sides = text.replace("×", "x").replace(",", "x").split("x") if text.strip() else []
    try:
        pixels = [int(side) for side in sides]
    except ValueError:
        pixels = [0]
    if len(pixels) > 2 or any(side < 1 for side in pixels):
        raise QuantityError(f'{text!r} is not an image size; write pixels: "64", or height and width: "416x608"')
    return None if not pixels else pixels[0] if len(pixels) == 1 else (pixels[0], pixels[1])


def devices(state: State) -> list[str]:
    """The devices to choose from: the CPU, the GPU where there is one, and the one already chosen."""
    found = ["cpu"]
    if not state.no_execution:  # a bare graph needs no torch
        import torch

        found += ["cuda"] if torch.cuda.is_available() else []
    return found if state.device in found else [*found, state.device]
