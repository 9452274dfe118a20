"""Searches that nobody has to start, and that give way to whatever a person starts.

`Improver` shows the best known schedule for a budget at once and then looks for a better one, `Sweeper` fills the
trade-off curve, and `Placer` says where the values of the plan lie in memory: by first fit at once, then better.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from remat_explorer.explanations import kinds_in
from remat_explorer.explorer.controllers.background import has_ended
from remat_explorer.explorer.controllers.screen import add_to_frontier, show_best_known, update_auto_selection
from remat_explorer.explorer.controllers.solving import POLL, prepare_process, warm_start
from remat_explorer.explorer.state.implementation_choices import lift_point, lift_solution
from remat_explorer.explorer.state.state import WITH_MAP, State
from remat_explorer.explorer.state.strategy_choice import default_implementations, solve_request
from remat_explorer.figures import AnyPlan, rectangles_of
from remat_explorer.graph import Graph
from remat_explorer.offsets import ALIGNMENT, Arena, place_at_once, place_rectangles
from remat_explorer.solvers import (
    STRATEGIES,
    Selection,
    Solution,
    SolveJob,
    Status,
    Support,
    Sweep,
    assess_schedule,
    method_of,
    spaced_budgets,
    unknown_point,
)

_MAX_IMPROVE_SECONDS = 20.0  # seconds of an improvement, at most
_QUIET_SECONDS = 0.4  # seconds for which the budget must stay as it is before its improvement begins
_SWEEP_BUDGETS, _SWEEP_BUDGETS_WITH_CHOICES = 12, 6  # of a curve; where implementations are chosen, each takes longer
_LARGE_GRAPH = 400  # operations from which methods with many schedules are left out: each would be checked here
_REDRAW_SECONDS = 0.4  # seconds between two looks of the screen at the sweep, but for the first
_PLACE_SECONDS = 2.0  # seconds for a better placement


class Improver:
    """Follows the budget: shows the best known schedule within it, and improves that while nobody asks for anything.

    A solution that was chosen or solved for exactly this budget stays as it is. Nothing is improved where `improve` is
    off, the chosen strategy is none that goes on from what it has (`Method.improves_on`), or the best known schedule is
    proven to be optimal. What a person starts ends an improvement; what it found by then joins the
    trade-off curve.

    Args:
        state: whose budget, work under way and trade-off curve are followed.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._shown: Solution | None = None  # what is on the screen because it is the best known
        state.observe(self._follow_budget, "budget")
        state.observe(self._follow_frontier, "frontier")
        state.observe(self._give_way, ["busy", "graph", "improve", "strategy", "implementations"])

    def show(self, budget: int | None = None) -> None:
        """Show the best known schedule within a budget, by default the state's; one that is edited by hand stays."""
        self._shown = None
        if not self._state.is_edited and show_best_known(self._state, budget) is not None:
            self._shown = self._state.solution

    def adopt(self) -> None:
        """Take what loading has put on the screen for the best known; the sweep may find better."""
        self._shown = self._state.solution

    def cancel(self) -> None:
        """End the improvement that is under way or waits."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until no improvement is under way; returns whether that came true in ``timeout`` seconds."""
        return has_ended(self._thread, timeout)

    def _follow_budget(self, change: Any) -> None:
        state = self._state
        self.cancel()
        if state.busy or state.graph is None or self._is_chosen():
            return
        self.show()
        self._begin()

    def _is_ours(self) -> bool:
        """Whether nobody has put another solution on the screen."""
        return not self._state.is_edited and (self._shown is None or self._state.solution is self._shown)

    def _is_chosen(self) -> bool:
        """Whether the solution on the screen was chosen or solved for exactly this budget."""
        solution, edited = self._state.solution, self._state.is_edited
        return not (edited or solution in (None, self._shown)) and solution.budget == self._state.budget

    def _follow_frontier(self, change: Any) -> None:
        """The sweep found something better than what is on the screen, which was not chosen but the best known."""
        state, shown = self._state, self._shown
        if state.busy or shown is None or state.solution is not shown or state.measurement is not None:
            return
        best = state.frontier.best(state.budget) if state.frontier is not None else None
        if best is not None and (best.cost, best.lower_bound) != (shown.cost, shown.lower_bound):
            words, tone = state.status, state.tone
            self.show()
            update_auto_selection(state)
            if words.startswith("Loaded"):  # what it says stays true, and may be a warning
                state.say(words, tone)

    def _give_way(self, change: Any) -> None:
        if self._state.busy or change["name"] != "busy":
            self.cancel()

    def _begin(self) -> None:
        state = self._state
        method = method_of(state.strategy)
        if not state.improve or state.graph is None or method is None or not method.improves_on(state.graph):
            return
        with self._lock:
            stop = self._stop = threading.Event()
            arguments = (state.graph, state.budget, stop, self._thread)
            self._thread = threading.Thread(target=self._work, args=arguments, name="remat-improving", daemon=True)
            self._thread.start()

    def _work(self, graph: Graph, budget: int, stop: threading.Event, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        state = self._state
        if stop.wait(_QUIET_SECONDS) or state.busy or not self._is_worth_it(budget):
            return
        state.improving, failure = True, ""
        try:
            self._improve(graph, budget, stop)
        except Exception as error:
            failure = f"Improving failed: {error}"
        finally:
            state.improving = False
        if not state.busy and state.budget == budget and self._is_ours():
            self.show()
            if failure:
                state.say(failure, "warning")
        prepare_process()

    def _is_worth_it(self, budget: int) -> bool:
        state, smallest = self._state, self._state.smallest
        best = state.frontier.best(budget) if state.frontier is not None else None
        if best is None:
            return smallest is None or budget >= smallest.lower_bound
        return best.status is not Status.OPTIMAL

    def _improve(self, graph: Graph, budget: int, stop: threading.Event) -> None:
        state = self._state
        limit = min(state.time_limit, _MAX_IMPROVE_SECONDS)
        if self._is_ours():
            self.show()
        strategy, request = state.strategy, solve_request(state, {})
        settings = {"time_limit": limit, "solver": state.solver, "cache": True, **request.options}
        settings["known"] = warm_start(state, request, budget)
        job = SolveJob.start(graph, budget, strategy, **settings)
        while not job.done:
            if stop.wait(POLL):
                job.cancel()
                break
            for report in job.poll()[-1:]:
                like = unknown_point(graph, strategy, budget)
                solution = assess_schedule(like, budget, report.schedule, report.lower_bound, seconds=report.seconds)
                self._take(graph, solution, stop, request.kinds)
        self._take(graph, job.solution(), stop, request.kinds)

    def _take(self, graph: Graph, solution: Solution, stop: threading.Event, kinds: tuple[str, ...]) -> None:
        """Let an answer join the curve if it says something new; the screen follows the curve."""
        state = self._state
        best = state.frontier.best(solution.budget) if state.frontier is not None else None
        cheaper = solution.cost is not None and (best is None or best.cost is None or solution.cost < best.cost)
        old = None if best is None else best.lower_bound
        tighter = solution.lower_bound is not None and (old is None or solution.lower_bound > old)
        if not (cheaper or tighter or (best is None and solution.status is Status.INFEASIBLE)):
            return
        add_to_frontier(state, graph, [solution], kinds=kinds)
        if best is None and self._is_ours() and not (stop.is_set() or state.busy):
            self.show()


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
        plain = default_implementations(graph) if graph.has_choices else None
        methods = self._methods(graph, False, every)
        budgets = self._budgets(graph, _SWEEP_BUDGETS)
        if plain is None:
            self._fill(graph, graph, budgets, methods, stop)
            return
        self._fill(graph, plain.graph, budgets, methods, stop, plain)
        if not stop.is_set():
            self._fill(
                graph, graph, self._budgets(graph, _SWEEP_BUDGETS_WITH_CHOICES), self._methods(graph, True, every), stop
            )

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
                if time.monotonic() - shown > _REDRAW_SECONDS and not stop.is_set():
                    self._publish(graph, run, plain)
                    shown = time.monotonic()
            self._publish(graph, run, plain)

    def _publish(self, graph: Graph, run: Sweep, plain: Selection | None) -> None:
        frontier, progress = run.frontier(), run.progress()
        solutions, own = frontier.solutions, frontier.own
        if plain is not None:
            solutions = tuple(lift_solution(solution, plain) for solution in solutions)
            own = tuple(lift_point(point, plain) for point in own)
        kinds = kinds_in(graph) if graph.has_choices and plain is None else ()
        add_to_frontier(self._state, graph, solutions, own, kinds)
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
            and (method.runs_in_background(graph.n >= _LARGE_GRAPH) or (every and graph.n < _LARGE_GRAPH))
        ]
        return sorted(chosen, key=lambda name: methods[name].improve is None)


class Placer:
    """Fills ``state.arena`` while the memory map is looked at.

    The first placement is there before the statement that changes the schedule ends. A search for a better one begins
    where it is not proven to be the smallest; another schedule, or another picture, ends it.

    Args:
        state: whose picture and schedule are followed.

    >>> import remat_explorer as rx
    >>> solution = rx.solve(rx.linear(8), 4)
    >>> state = State(graph=solution.graph, picture="memory")
    >>> placer = Placer(state)
    >>> state.schedule = solution.schedule
    >>> state.arena.size
    4
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._placed: AnyPlan | None = None
        state.observe(self._follow, ["schedule", "sending", "picture"])
        self._follow()

    def cancel(self) -> None:
        """End the search for a better placement; the one that is known stays."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until no search is under way; returns whether that came true in ``timeout`` seconds."""
        return has_ended(self._thread, timeout)

    def _follow(self, change: Any = None) -> None:
        state = self._state
        with state.lock:
            plan = state.shown_plan if state.picture in WITH_MAP else None
            if plan is None or plan is self._placed:
                if plan is None:
                    self.cancel()
                    self._placed = state.arena = None
                return
            self.cancel()
            self._placed = plan
            state.arena = arena = place_at_once(rectangles_of(plan), alignment_of(plan.graph))
        if not arena.optimal:
            stop = self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._improve, args=(plan, stop, self._thread), name="remat-placing", daemon=True
            )
            self._thread.start()

    def _improve(self, plan: AnyPlan, stop: threading.Event, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        state = self._state
        better = place_rectangles(rectangles_of(plan), alignment_of(plan.graph), _PLACE_SECONDS, over=stop.is_set)
        with state.lock:
            shown = state.arena
            if self._placed is plan and shown is not None and not stop.is_set() and _is_better(better, shown):
                state.arena = better


def _is_better(arena: Arena, than: Arena) -> bool:
    """Whether an arena is smaller than another, or more is proven of it."""
    return (arena.size, -arena.bound) < (than.size, -than.bound)


def alignment_of(graph: Graph) -> int:
    """Bytes that offsets are a multiple of: as on a GPU for captured graphs, 1 for graphs whose bytes are units.

    >>> from remat_explorer.instances import linear
    >>> alignment_of(linear(2))
    1
    """
    return 1 if graph.options is None else ALIGNMENT
