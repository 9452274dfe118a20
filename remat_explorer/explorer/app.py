"""The explorer: views on one state, and the three things that can be started."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as w

from remat_explorer.errors import UnknownNameError
from remat_explorer.explorer.background import Background
from remat_explorer.explorer.budget_view import BudgetView
from remat_explorer.explorer.controls import Controls
from remat_explorer.explorer.executing import execute
from remat_explorer.explorer.loading import NO_MODULE, Source, from_graph, from_module, from_zoo, load
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.model_view import ModelView
from remat_explorer.explorer.plan_view import PlanView
from remat_explorer.explorer.scrubber import Scrubber
from remat_explorer.explorer.solving import solve
from remat_explorer.explorer.state import State
from remat_explorer.explorer.status_line import StatusLine
from remat_explorer.explorer.timeline import TimelineView
from remat_explorer.graph import Graph

DEFAULT_MODEL = "residual_net"
SETTINGS = ("batch", "budget", "device", "image", "measured_costs", "solver", "strategy", "time_limit")
STYLE = Path(__file__).parent / "explorer.css"


class Explorer(w.VBox):
    """Explore schedules of a model: choose a budget, solve, look, execute.

    Args:
        model: name of a zoo model (default "residual_net"), a `torch.nn.Module`, or None with ``graph``.
        args: the module's example inputs.
        kwargs: the module's example keyword inputs.
        loss: as for `remat_explorer.capture`.
        graph: a training graph without a module; it can be solved and looked at, not executed.
        settings: batch, image, device, budget (bytes, "1.5 GiB", "60%"), strategy, solver, time_limit, measured_costs.

    Raises:
        UnknownNameError: if a setting or a model does not exist; near matches are listed.

    Everything that a click does is an attribute of `state` or a method here:

    >>> import remat_explorer as rx
    >>> explorer = rx.Explorer(graph=rx.linear(8), strategy="checkpoint-all")
    >>> explorer.wait(60), explorer.state.checkpoint_all_peak
    (True, 10)
    >>> explorer.state.stage = 7
    >>> rx.Explorer(graph=rx.linear(8), stategy="optimal")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown setting 'stategy'; did you mean 'strategy'? Known: batch, ...
    """

    def __init__(
        self,
        model: Any = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        loss: Any = None,
        graph: Graph | None = None,
        **settings: Any,
    ) -> None:
        for name in settings:
            if name not in SETTINGS:
                raise UnknownNameError("setting", name, SETTINGS)
        budget = settings.pop("budget", None)
        self.state, self._wish = State(**settings), budget
        self._source = self._choose(model, args, kwargs, loss, graph)
        self._background = Background(self.state)
        zoo = self._source is from_zoo
        self._views = (
            Controls(self.state, self, _zoo_names() if zoo else [self.state.model], zoo),
            BudgetView(self.state),
            StatusLine(self.state),
            Scrubber(self.state),
            MatrixView(self.state),
            TimelineView(self.state),
            PlanView(self.state),
            ModelView(self.state),
        )
        controls, budget_row, status, scrubber, matrices, timeline, plan, graph_view = (
            view.widget for view in self._views
        )
        style = w.HTML(f"<style>{STYLE.read_text()}</style>", layout=w.Layout(display="none"))
        below = w.HBox([timeline, plan], layout=w.Layout(width="100%", flex_flow="row wrap"))
        super().__init__([style, controls, budget_row, status, scrubber, matrices, graph_view, below])
        self.add_class("remat-explorer")
        self._adopting = False
        self.state.observe(self._chosen, ["model", "batch", "image", "device", "measured_costs"])
        self.load()

    def _choose(self, model: Any, args: Any, kwargs: Any, loss: Any, graph: Graph | None) -> Source:
        state = self.state
        if graph is not None:
            state.model, state.no_execution = graph.name, NO_MODULE
            return from_graph(graph)
        if model is None or isinstance(model, str):
            state.model = model or DEFAULT_MODEL
            names = _zoo_names()
            if state.model not in names:
                raise UnknownNameError("model", state.model, names)
            return from_zoo
        state.model = type(model).__name__
        return from_module(model, tuple(args), kwargs, loss)

    def _chosen(self, change: Any) -> None:
        """Another model starts with sizes of its own; any choice loads anew."""
        if self._adopting:
            return
        if change["name"] == "model":
            self._adopt(0, None)
        self.load()

    def _adopt(self, batch: int, image: Any) -> None:
        with self.state.lock:  # a choice made meanwhile waits, and is not mistaken for this one
            self._adopting = True
            self.state.batch, self.state.image = batch, image
            self._adopting = False

    def load(self) -> None:
        """Load the chosen model anew, in the background; what is under way is cancelled."""
        self._background.cancel()
        self._background.start("loading", self._load)

    def _load(self, cancelled: Any) -> None:
        loaded = load(self.state, self._source, cancelled)
        if loaded is not None and loaded.batch and not cancelled.is_set():
            self._adopt(loaded.batch, loaded.image)
        if self._wish is not None and self.state.graph is not None:
            wish, self._wish = self._wish, None
            self.state.set_budget(wish)

    def solve(self) -> None:
        """Solve within the budget, in the background; incumbents appear as they are found."""
        self._background.start("solving", partial(solve, self.state))

    def execute(self) -> None:
        """Execute the solution on the screen and measure it, in the background."""
        self._background.start("executing", partial(execute, self.state))

    def cancel(self) -> None:
        """Stop what is under way; a solve keeps the best schedule it has found."""
        self._background.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until nothing is under way; returns whether that came true in ``timeout`` seconds."""
        return self._background.wait(timeout)

    @property
    def solution(self) -> Any:
        """The solution on the screen."""
        return self.state.solution

    @property
    def measurement(self) -> Any:
        """The measurement of the solution on the screen, or None."""
        return self.state.measurement


def _zoo_names() -> list[str]:
    from remat_explorer import models

    return list(models.names())
