"""The trade-off curve in the background: a sweep that gives way to everything that a person starts."""

from __future__ import annotations

import threading
import time
from typing import Any

from remat_explorer.explanations.choices import kinds_in
from remat_explorer.explorer.state.answers import lifted, lifted_point
from remat_explorer.explorer.state.frontiers import join
from remat_explorer.explorer.state.questions import plain_selection
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.background import has_ended
from remat_explorer.graph import Graph
from remat_explorer.solvers import STRATEGIES, Sweep
from remat_explorer.solvers.budgets import spaced_budgets
from remat_explorer.solvers.method import Support
from remat_explorer.solvers.monet.selections import Selection
from remat_explorer.solvers.registry import method_of

BUDGETS, WITH_CHOICES = 12, 6  # of a curve; where implementations are chosen, each takes longer
LARGE = 400  # operations from which the methods with many schedules are left out: each would be checked in this process
PAUSE = 0.4  # seconds between two looks of the screen at the sweep, but for the first


class Sweeper:
    """Runs one sweep of the state's graph whenever nothing else is under way, until it is done.

    What a person starts ends the sweep's worker at once; afterwards the sweep goes on from its cache.

    Args:
        state: `frontier` and `sweeping` are kept up to date; `sweep` switches it off.

    >>> import remat_explorer as rx
    >>> state = State()
    >>> sweeper = Sweeper(state)
    >>> state.graph = rx.linear(8)
    >>> sweeper.wait(120)
    True
    >>> state.frontier.best(4).cost, state.sweeping
    (26.0, None)
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._condition = threading.Condition()  # the state's lock is never taken under this one
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._run: Sweep | None = None
        self._done: Graph | None = None  # the graph whose sweep has ended
        self._every = False  # whether that one had every method
        state.observe(self._decide, ["busy", "improving", "graph", "sweep", "methods"])
        self._decide()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the sweep of the loaded graph is done; returns whether that came true in ``timeout`` seconds."""
        with self._condition:
            return self._condition.wait_for(self._is_settled, timeout)

    def has_given_way(self, timeout: float | None = None) -> bool:
        """Block until the sweep under way has given way; returns whether that came true in ``timeout`` seconds."""
        with self._condition:
            thread = self._thread
        return has_ended(thread, timeout)

    def _is_settled(self) -> bool:
        state = self._state
        left = state.graph is not None and state.sweep and not self._has(state.graph)
        return self._thread is None and not left and not state.improving

    def _has(self, graph: Graph) -> bool:
        """Whether the sweep of a graph has ended, with every method where they are shown."""
        return self._done is graph and (self._every or not self._state.methods)

    def _decide(self, change: Any = None) -> None:
        """Begin, or give way."""
        state = self._state
        with self._condition:
            graph = state.graph
            idle = state.sweep and not state.busy and not state.improving
            wanted = idle and graph is not None and not self._has(graph)
            if not wanted:
                self._stop.set()
                if self._run is not None:
                    self._run.cancel()
            elif self._thread is None:
                self._stop = threading.Event()
                arguments = (graph, self._stop, state.methods)
                self._thread = threading.Thread(target=self._work, args=arguments, name="remat-sweeping", daemon=True)
                self._thread.start()
            self._condition.notify_all()

    def _work(self, graph: Graph, stop: threading.Event, every: bool) -> None:
        state, done = self._state, True
        try:
            self._sweep(graph, stop, every)
            done = not stop.is_set()
        except Exception as error:  # the curve is no work that anyone waits for
            if not (state.busy or state.improving or stop.is_set()):
                state.say(f"The trade-off curve is incomplete: {error}", "warning")
        finally:
            with self._condition:
                self._run = None
            state.sweeping = None
            with self._condition:
                self._thread = None
                if done:
                    self._done, self._every = graph, every
                self._condition.notify_all()
            self._decide()  # what was wanted may have changed meanwhile

    def _sweep(self, graph: Graph, stop: threading.Event, every: bool) -> None:
        """The curve; on a graph with choices first that of its default implementations, then with all of them."""
        plain = plain_selection(graph) if graph.has_choices else None
        methods = self._methods(graph, False, every)
        budgets = self._budgets(graph, BUDGETS)
        if plain is None:
            self._fill(graph, graph, budgets, methods, stop)
            return
        self._fill(graph, plain.graph, budgets, methods, stop, plain)
        if not stop.is_set():
            self._fill(graph, graph, self._budgets(graph, WITH_CHOICES), self._methods(graph, True, every), stop)

    def _fill(
        self,
        graph: Graph,
        swept: Graph,
        budgets: int | list[int],
        methods: list[str],
        stop: threading.Event,
        plain: Selection | None = None,
    ) -> None:
        """Sweep a graph that is ``graph`` itself, or its selection ``plain``."""
        state = self._state
        run = Sweep(swept, budgets, methods, workers=1, solver=state.solver, cache=True)
        with self._condition:
            self._run = run
            if stop.is_set():
                return
        state.sweeping, shown = 0.0, 0.0
        with run:
            for _ in run:
                if time.monotonic() - shown > PAUSE and not stop.is_set():
                    self._publish(graph, run, plain)
                    shown = time.monotonic()
            self._publish(graph, run, plain)

    def _publish(self, graph: Graph, run: Sweep, plain: Selection | None) -> None:
        frontier, progress = run.frontier(), run.progress()
        solutions, own = frontier.solutions, frontier.own
        if plain is not None:
            solutions = tuple(lifted(solution, plain) for solution in solutions)
            own = tuple(lifted_point(point, plain) for point in own)
        kinds = kinds_in(graph) if graph.has_choices and plain is None else ()
        join(self._state, graph, solutions, own, kinds)
        if not self._stop.is_set():
            self._state.sweeping = progress.done / progress.points if progress.points else 0.0

    def _budgets(self, graph: Graph, count: int) -> int | list[int]:
        smallest = self._state.smallest
        if smallest is None:
            return count
        least, most = smallest.known_feasible, smallest.checkpoint_all_peak
        if least >= most:  # nothing better than keeping everything was found in the time there was
            least = smallest.lower_bound
        return spaced_budgets(least, most, count)

    def _methods(self, graph: Graph, choices: bool, every: bool) -> list[str]:
        """Those that choose implementations, or those that do not, and run in the background; less what is known.

        With ``every``, when a person has asked for other methods, all run that there are, but on a large graph.
        Anytime strategies come first: their first answers are there before the others' curves, their better ones after.
        """
        frontier = self._state.frontier
        swept = {point.strategy for point in frontier.own} if frontier is not None else set()
        methods = {name: method for name in STRATEGIES if name not in swept and (method := method_of(name))}
        chosen = [
            name
            for name, method in methods.items()
            if (method.choices is Support.YES) == choices
            and (method.runs_in_background(graph.n >= LARGE) or (every and graph.n < LARGE))
        ]
        return sorted(chosen, key=lambda name: methods[name].improve is None)
