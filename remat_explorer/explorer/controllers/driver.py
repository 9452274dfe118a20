"""Everything that a click does, as methods: what the buttons call and what scripts drive."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import SolutionError, UnknownNameError
from remat_explorer.explorer.controllers.background import Background
from remat_explorer.explorer.controllers.background_searches import Improver, Placer, Sweeper
from remat_explorer.explorer.controllers.editing import EditingMethods, follow_editing
from remat_explorer.explorer.controllers.executing import execute
from remat_explorer.explorer.controllers.exploration_cache import ExplorationCache
from remat_explorer.explorer.controllers.fit_answers import FitMethods, FitWorker
from remat_explorer.explorer.controllers.loading import load
from remat_explorer.explorer.controllers.model_sources import ModelSources
from remat_explorer.explorer.controllers.scenes import Scene, ScenePlayer, default_scenes
from remat_explorer.explorer.controllers.schedule_comparison import swap_compared
from remat_explorer.explorer.controllers.screen import choose_solution, show_known_for_kinds
from remat_explorer.explorer.controllers.solving import solve
from remat_explorer.explorer.state.implementation_choices import ALL, NONE, needs_capture
from remat_explorer.explorer.state.navigation import resolve_index
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.state.strategy_choice import forget_default_implementations
from remat_explorer.offload import TransferSolution
from remat_explorer.solvers import Solution

_CLOSE_SECONDS = 5.0  # seconds for work to end: a module's own code may go on for longer
_FIRST_SECONDS = 4.0  # seconds for the optimum of the network that is shown where nobody has chosen one


class Driver(EditingMethods, FitMethods):
    """Loads, sweeps, improves, solves and executes on one state, all in the background.

    Args:
        state: of whoever shows it.
        sources: the models to choose from.
        budget: what `State.set_budget` takes, for the first model; or None.

    Setting ``state.budget`` shows the best known schedule within it before the statement ends, and begins to improve it
    in the background unless ``state.improve`` is False. `wait` does not wait for that, nor for the sweep: they are
    nothing that was asked for, and they give way to `solve`, `execute` and another model. `wait_for_sweep` does.

    >>> import remat_explorer as rx
    >>> state = State(improve=False)
    >>> driver = Driver(state, ModelSources(graph=rx.linear(8)))
    >>> driver.wait(60) and driver.wait_for_sweep(60)
    True
    >>> state.budget = 4
    >>> driver.solution.cost
    26.0
    >>> driver.select(operation="v3")
    >>> state.stage, state.value
    (3, 3)
    """

    def __init__(self, state: State, sources: ModelSources, budget: str | int | float | None = None) -> None:
        self.state, self._sources, self._wish = state, sources, budget
        self._adopting = False
        state.model = sources.first
        if sources.has_choices and state.implementations == NONE:
            state.implementations = ALL
        self._background = Background(state)
        self._presenting = ScenePlayer(state, self.execute)
        self._improver, self._sweeper, self._placer = Improver(state), Sweeper(state), Placer(state)
        self._cache, self._fitter = ExplorationCache(state), FitWorker(state)
        follow_editing(state)
        state.observe(self._chosen, ["model", "batch", "image", "device", "measured_costs"])
        state.observe(self._allowed, "implementations")
        state.observe(self._send_otherwise, "transfers")
        self.load()

    def load(self) -> None:
        """Load the chosen model anew, a model file as it is now; what is under way is cancelled."""
        self.cancel()
        self._background.start("loading", self._load)

    def solve(self) -> None:
        """Solve within the budget; incumbents appear as they are found."""
        self._background.start("solving", partial(solve, self.state))

    def execute(self) -> None:
        """Execute the solution on the screen and measure it."""
        self._background.start("executing", partial(execute, self.state))

    def cancel(self) -> None:
        """Stop what is under way, improvements included; a solve keeps the best schedule it has found."""
        self._improver.cancel()
        self._background.cancel()

    def stop(self) -> None:
        """End all work, the sweep included, and begin none by itself any more."""
        self._placer.cancel()
        self.state.fit_asked = False
        self.state.sweep = self.state.improve = False
        self.cancel()

    def close(self) -> None:
        """End all work, wait a few seconds at most for it, and let go of model, graph and all that was found."""
        state, end = self.state, time.monotonic() + _CLOSE_SECONDS
        with state.lock:  # nothing can begin in between because of what has just changed
            self.stop()
            state.unobserve_all()
        works = (self._background, self._improver, self._placer, self._fitter)
        for wait in (*(work.wait for work in works), self._sweeper.has_given_way):
            wait(max(0.0, end - time.monotonic()))
        forget_default_implementations(state.graph)
        state.release()

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until nothing that was asked for is under way; returns whether that came true in time."""
        require_arguments(Driver.wait, locals())
        return self._background.wait(timeout)

    def wait_for_sweep(self, timeout: Seconds | None = None) -> bool:
        """Block until the trade-off curve is filled, and no schedule and no placement is being improved.

        Returns:
            Whether that came true in time.
        """
        require_arguments(Driver.wait_for_sweep, locals())
        end = None if timeout is None else time.monotonic() + timeout
        for wait in (self._background.wait, self._improver.wait, self._sweeper.wait, self._placer.wait):
            if not wait(None if end is None else max(0.0, end - time.monotonic())):
                return False
        return True

    def toggle(self, kind: str, chosen: bool | None = None) -> None:
        """Allow a kind of implementations, or no longer; what is known for the kinds that are left is shown at once.

        Args:
            kind: a key of `remat_explorer.capture_options.KINDS`, or a kind of the graph's own.
            chosen: whether it may be chosen; None for the opposite of what it is.

        Raises:
            UnknownNameError: if there is no such kind.
        """
        require_arguments(Driver.toggle, locals())
        kinds = set(self.state.kinds)
        wanted = kind not in kinds if chosen is None else chosen
        self.state.implementations = kinds | {kind} if wanted else kinds - {kind}

    def preview(self, budget: int) -> None:
        """Show the best known schedule within a budget without choosing it, as dragging the slider does.

        Args:
            budget: bytes, resident bytes included.
        """
        require_arguments(Driver.preview, locals())
        if not self.state.busy:
            self._improver.show(budget)

    def choose(self, solution: Solution) -> None:
        """Show a solution, such as a point of the trade-off curve, and make its budget the chosen one."""
        require_arguments(Driver.choose, locals())
        choose_solution(self.state, solution)

    def compare(self, with_: Solution | str | None) -> None:
        """Compare the solution on the screen with another one.

        Args:
            with_: a solution; the path of a solution file; the name of a strategy, for its best known schedule within
                the budget (if it has none, the one with the lowest peak); or None to end the comparison.

        Raises:
            SolutionError: if the solution is one of another graph or has no schedule.
            UnknownNameError: if none of the strategy is known.
        """
        require_arguments(Driver.compare, locals())
        state = self.state
        if isinstance(with_, str) and with_.endswith(".json") and state.graph is not None:
            with_ = Solution.load_schedule(with_, state.graph)
        elif isinstance(with_, str):
            with_ = self._best_of(with_)
        if with_ is not None and (with_.schedule is None or with_.graph is not state.graph):
            raise SolutionError("only a solution of the loaded graph with a schedule can be compared")
        state.other = with_
        if with_ is not None:
            state.panel = "compare"

    def swap(self) -> None:
        """Put the compared solution on the screen, and compare with the one that was there."""
        swap_compared(self.state)

    def play(self, playing: bool = True) -> None:
        """Play the stages one after the other where the explorer is shown, or stop that."""
        require_arguments(Driver.play, locals())
        self.state.playing = playing

    def present(self, scenes: Iterable[Scene] | None = None) -> None:
        """Show scenes one after the other; `State.scene` is the one on the screen.

        Args:
            scenes: from the first one to the last; None for usual ones of the loaded model.
        """
        require_arguments(Driver.present, locals())
        with self.state.at_once():
            self.state.scenes = default_scenes(self.state) if scenes is None else tuple(scenes)
            self.state.scene = 0

    def select(
        self, stage: int | None = None, value: int | str | None = None, operation: int | str | None = None
    ) -> None:
        """Move the cursor.

        Args:
            stage: stage t.
            value: its number or its name.
            operation: number or name; selects its first output and, unless ``stage`` is given, the stage in which it
                runs for the first time.

        Raises:
            UnknownNameError: if there is no such name; near ones are listed.
        """
        require_arguments(Driver.select, locals())
        state, graph = self.state, self.state.graph
        if graph is None:
            return
        if operation is not None:
            state.select_operation(resolve_index("operation", operation, [node.name for node in graph.operations]))
        if value is not None:
            state.value = resolve_index("value", value, [entry.name for entry in graph.values])
        if stage is not None:
            state.stage = stage

    @property
    def solution(self) -> Solution | TransferSolution | None:
        """The solution on the screen."""
        return self.state.sending or self.state.solution

    @property
    def measurement(self) -> Any:
        """The measurement of the solution on the screen, or None."""
        return self.state.measurement

    def _chosen(self, change: Any) -> None:
        """Another model starts with sizes of its own; any choice loads anew."""
        if self._adopting:
            return
        if self.state.panel == "execution":  # there is no run of it yet
            self.state.panel = "explain"
        if change["name"] == "model":
            self._adopt(0, None)
        self.load()

    def _allowed(self, change: Any) -> None:
        """Other implementations may be chosen: capture them if need be, else show what is known, and solve."""
        state = self.state
        graph = state.graph
        if graph is None or state.busy == "loading" or (state.inputs and needs_capture(graph, state.implementations)):
            self.load()
        elif graph.has_choices:
            self.cancel()
            if not show_known_for_kinds(state):
                self._background.start("solving", partial(solve, state))

    def _send_otherwise(self, change: Any) -> None:
        """What is known at another bandwidth is shown at once."""
        if self.state.graph is not None and not self.state.busy:
            self._improver.show()

    def _adopt(self, batch: int, image: Any) -> None:
        with self.state.lock:  # a choice made meanwhile waits, and is not mistaken for this one
            self._adopting = True
            self.state.batch, self.state.image = batch, image
            self._adopting = False

    def _load(self, cancelled: Any) -> None:
        state, wish = self.state, self._wish
        optimum = _FIRST_SECONDS if self._sources.nothing_chosen and state.model == self._sources.first else None
        loaded = load(state, self._sources.load, cancelled, wish, optimum)
        if loaded is None:
            return
        self._wish = None
        if loaded.batch and not cancelled.is_set():
            self._adopt(loaded.batch, loaded.image)
        self._improver.adopt()
        self._fitter.offer()

    def _best_of(self, strategy: str) -> Solution:
        frontier = self.state.frontier
        mine = [] if frontier is None else [s for s in frontier.points if s.strategy == strategy]
        if not mine:
            strategies = () if frontier is None else {s.strategy for s in frontier.points}
            raise UnknownNameError("strategy on the trade-off curve", strategy, strategies)
        fitting = [s for s in mine if (s.peak or 0) <= self.state.budget]
        return min(fitting, key=lambda s: s.cost or 0.0) if fitting else min(mine, key=lambda s: s.peak or 0)
