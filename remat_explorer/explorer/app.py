"""The explorer: views on one state, and everything that can be started."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ipywidgets as w
import traitlets as t
from traitlets import TraitError

from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ArgumentError, ClosedError, UnknownNameError, shown
from remat_explorer.explorer.controllers.driver import Driver
from remat_explorer.explorer.controllers.model_sources import NO_MODULE, ModelSources, zoo_groups
from remat_explorer.explorer.controls import Controls
from remat_explorer.explorer.curve import CurveView
from remat_explorer.explorer.export import ExportView
from remat_explorer.explorer.implementations_view import ImplementationsView
from remat_explorer.explorer.matrices import MatrixView
from remat_explorer.explorer.measured_run import MeasuredRunView
from remat_explorer.explorer.memory_view import MemoryView
from remat_explorer.explorer.model_view import ModelView
from remat_explorer.explorer.page_widget import PageWidget, close_widgets
from remat_explorer.explorer.panels.case_view import CaseView
from remat_explorer.explorer.panels.panels import Panels
from remat_explorer.explorer.panels.runs_twice import RunsTwiceView
from remat_explorer.explorer.plots_view import PlotsView
from remat_explorer.explorer.presenter import PresenterView
from remat_explorer.explorer.scrubber import Scrubber
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import describe_strategy, strategy_groups, unsuitable_strategies
from remat_explorer.explorer.static_view import StaticView
from remat_explorer.explorer.story import StoryView
from remat_explorer.explorer.tour import Tour, TourView
from remat_explorer.graph import Graph

SETTINGS = (
    "batch",
    "budget",
    "device",
    "image",
    "implementations",
    "improve",
    "measured_costs",
    "options",
    "permissions",
    "solver",
    "strategy",
    "sweep",
    "time_limit",
    "transfers",
)
STYLE = Path(__file__).parent / "app.css"
CLOSED = "This explorer is closed and has let go of its model; open another one with rx.Explorer(...)."


class Explorer(Driver, w.VBox):
    """Explore schedules of a model: choose a budget, solve, look, execute.

    Args:
        model: name of a zoo model, "path/to/file.py:make_model", a `torch.nn.Module`, a training graph, or None with
            ``graph``. Without any of them a small network is shown, with a guided tour.
        args: the module's example inputs.
        kwargs: the module's example keyword inputs.
        loss: as for `remat_explorer.capture`.
        graph: a training graph without a module; it can be solved and looked at, not executed.
        settings: batch, image, device (else where the module lies), budget (bytes, "1.5 GiB", "60%"), strategy,
            options, solver, time_limit; transfers (what copies to the host take, such as "25 GB/s": values may then be
            sent away); measured_costs (True for measured ones from the beginning, False for estimates;
            without it, estimates are replaced by what is measured once a schedule is executed); implementations
            ("none", "exact", "all", or kinds of them) that may be chosen; improve and sweep, of which False keeps the
            explorer from working by itself; permissions, for a page that others see
            (`remat_explorer.permissions.Permissions`; everything is allowed without).

    Raises:
        UnknownNameError: if a setting or a model does not exist; near matches are listed.

    Everything that a click does is an attribute of `state` or a method here; `Driver` has them all.

    >>> import remat_explorer as rx
    >>> explorer = rx.Explorer(graph=rx.linear(8), budget=4, improve=False)
    >>> explorer.wait(60), explorer.state.checkpoint_all_peak, explorer.solution.cost
    (True, 10, 26.0)
    >>> explorer.state.budget = 6  # the best known schedule at once
    >>> explorer.solve()  # and the optimum, in the background
    >>> explorer.wait(60), explorer.solution.cost
    (True, 21.0)
    >>> explorer.compare("checkpoint-all")
    >>> explorer.state.other.cost, explorer.state.panel
    (17.0, 'compare')
    >>> explorer.select(stage=7)
    >>> rx.Explorer(graph=rx.linear(8), stategy="optimal")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    remat_explorer.errors.UnknownNameError: unknown setting 'stategy'; did you mean 'strategy'? Known: batch, ...
    """

    _is_closed = False

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
        require_arguments(Explorer.__init__, locals())
        self._bare = frozenset(vars(self))  # what a widget has; the rest goes when it is closed
        if isinstance(model, Graph):
            if graph is not None:
                raise ArgumentError("Explorer does not take two graphs; leave out graph=, or the first argument")
            model, graph = None, model
        if isinstance(model, int | float | bytes | list | tuple | dict | set):
            raise ArgumentError(
                f"Explorer does not take model={shown(model)}; it takes a name of the zoo, a path of a model file, a "
                "torch.nn.Module or a graph"
            )
        for name in settings:
            if name not in SETTINGS:
                raise UnknownNameError("setting", name, SETTINGS)
        budget = settings.pop("budget", None)
        try:
            state = State(**settings)
        except TraitError as error:
            raise ArgumentError(f"Explorer does not take what was set: {error}") from None
        sources = ModelSources(model, args, kwargs, loss, graph, state.permissions)
        state.model, state.no_execution = sources.first, NO_MODULE if graph is not None else ""
        if "device" not in settings:
            state.device = sources.device
        self._tour = Tour(state, wanted=sources.nothing_chosen)
        matrices = MatrixView(state)  # hears first: where the cursor is has to be seen at once
        curve, twice, memory = CurveView(state, self.preview), RunsTwiceView(state), MemoryView(state)
        # by the page alone: what is dragged or pointed at is seen at once
        self._links = [
            w.jsdlink((curve.slider, "dragged"), (matrices.widget, "dragged")),
            *(w.jsdlink((twice.widget, "hovered"), (view.widget, "hovered")) for view in (matrices, memory)),
        ]
        run = MeasuredRunView(state)  # before the plots: they would show a new measurement as a whole at first
        self._export = ExportView(state, lambda doing, work: self._background.start(doing, work))
        self._standing = StaticView(state)
        self._presenter = PresenterView(state, self.present)
        tools = [self._presenter.widget, self._export.widget]
        self._views = (
            Controls(state, self, sources, curve.field, tools),
            StoryView(state, self.cancel),
            curve,
            Scrubber(state),
            ImplementationsView(state, self.toggle),
            matrices,
            memory,
            ModelView(state),
            CaseView(state),
            PlotsView(state),
            twice,
            Panels(state),
        )
        controls, story, slider, scrubber, ways, *pictures, repeated, panels = (view.widget for view in self._views)
        Driver.__init__(self, state, sources, budget)
        rows = [
            w.HTML(f"<style>{STYLE.read_text()}</style>", layout=w.Layout(display="none")),
            ExplorerPage(state),
            run.widget,
            controls,
            story,
            TourView(state, self._tour).widget,
            slider,
            scrubber,
            ways,
            w.HBox(pictures).add_class("remat-pictures"),
            w.HBox([repeated, panels]).add_class("remat-below"),
        ]
        w.VBox.__init__(self, rows)
        self.add_class("remat-explorer")
        state.observe(self._make_room, "graph")
        state.observe(self._dim, "stale")
        self._make_room()

    def _ipython_display_(self) -> None:
        """Show the explorer, and beneath it, for pages without a kernel, a picture of how it stands."""
        from IPython.display import display

        if self._is_closed:
            display({"text/plain": CLOSED}, raw=True)
            return
        display(self._repr_mimebundle_(), raw=True)
        if not os.environ.get("SERVER_SOFTWARE", "").startswith("voila"):  # which shows no page without its kernel
            self._standing.show()

    def _make_room(self, change: Any = None) -> None:
        """Where there are choices of implementations, the picture leaves a row to them."""
        graph = self.state.graph
        (self.add_class if graph is not None and graph.has_choices else self.remove_class)("remat-with-choices")

    def _dim(self, change: Any) -> None:
        """The picture of another model than the chosen one is dimmed; the status line says whose it is."""
        (self.add_class if change["new"] else self.remove_class)("remat-stale")

    def close(self) -> None:
        """Take the explorer from the page, end its work, and let go of its model, its graph and all that was found.

        Waits a few seconds at most for what is under way. Solutions that were taken from it stay; whatever else is
        asked of it from then on raises a `ClosedError`.

        >>> import remat_explorer as rx
        >>> explorer = rx.Explorer(graph=rx.linear(8), improve=False)
        >>> explorer.close()
        >>> explorer.solve()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        remat_explorer.errors.ClosedError: This explorer is closed and has let go of its model; open another one ...
        """
        if "state" in vars(self):  # neither where the arguments were refused, nor a second time
            Driver.close(self)
            close_widgets(self)
            self.children = ()
            for name in set(vars(self)) - self._bare - {"_bare"}:
                delattr(self, name)
            self._is_closed = True
        w.VBox.close(self)

    if not TYPE_CHECKING:  # which would let every name pass

        def __getattr__(self, name: str) -> Any:
            """What a closed explorer had is gone."""
            if self._is_closed:
                raise ClosedError(CLOSED)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def export(self, kind: str, path: str | Path | None = None) -> Path:
        """Save one kind of file (report, solution, graph, sweep, trace, snapshot, or a picture of what is shown).

        What takes long is written in the background, and pictures by the browser that shows the explorer.

        Args:
            kind: what to save, one of `remat_explorer.explorer.export.EXPORTS`; matrices-png, memory-png,
                model-png, plots-png and plots-svg are the pictures.
            path: where; by default a name of its own in the working directory. Nothing is replaced: where there is
                such a file already, a numbered name beside it is taken.

        Returns:
            Where it is, or will be, written.

        Raises:
            RematError: if there is no such kind, something is missing for it, or the file cannot be written.
        """
        require_arguments(Explorer.export, locals())
        return self._export.export(kind, path)


class ExplorerPage(PageWidget):
    """A line above the explorer, empty as long as its kernel answers, for no kernel can say that it has gone.

    It remembers in the browser whether the fields under "More" were open, for the explorers that are shown next. And it
    gives the page what ipywidgets has no trait for: that buttons are tabs, the groups of a list's entries, and what is
    to be said of them: the strategies that the graph is not for, which cannot be chosen, or in part only.
    """

    more = t.Bool(False).tag(sync=True)
    fits = t.Dict({}).tag(sync=True)
    groups = t.Dict({}).tag(sync=True)
    _esm = Path(__file__).parent / "app.js"

    def __init__(self, state: State) -> None:
        models, strategies = zoo_groups(), strategy_groups()
        shown = {name: [describe_strategy(one).split()[0] for one in members] for name, members in strategies.items()}
        groups = {"model": list(models.items()), "strategy": list(shown.items())}
        super().__init__(more=state.more, groups=groups)
        self.observe(lambda change: setattr(state, "more", change["new"]), "more")
        state.observe(lambda change: setattr(self, "more", change["new"]), "more")
        state.observe(self._tell_fits, "graph")
        self._state = state
        self._tell_fits()

    def _tell_fits(self, change: Any = None) -> None:
        graph = self._state.graph
        self.fits = (
            {name: asdict(fit) for name, fit in unsuitable_strategies(graph).items()} if graph is not None else {}
        )
