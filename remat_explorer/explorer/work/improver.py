"""A budget that was set: the best known schedule for it at once, and then a better one, found in the background."""

from __future__ import annotations

import threading
from typing import Any

from remat_explorer.explorer.state.frontiers import join
from remat_explorer.explorer.state.questions import question_of
from remat_explorer.explorer.state.state import State
from remat_explorer.explorer.work.background import has_ended
from remat_explorer.explorer.work.best_known import show_known
from remat_explorer.explorer.work.looking import look_again
from remat_explorer.explorer.work.solving import POLL, known_answer, prepare
from remat_explorer.graph import Graph
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers import SolveJob
from remat_explorer.solvers.registry import method_of
from remat_explorer.solvers.sweeps.own_points import assess_schedule, unknown_point

LONGEST = 20.0  # seconds of an improvement, at most
QUIET = 0.4  # seconds for which the budget must stay as it is before its improvement begins


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
        if not self._state.is_edited and show_known(self._state, budget) is not None:
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
            look_again(state)
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
        if stop.wait(QUIET) or state.busy or not self._is_worth_it(budget):
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
        prepare()

    def _is_worth_it(self, budget: int) -> bool:
        state, smallest = self._state, self._state.smallest
        best = state.frontier.best(budget) if state.frontier is not None else None
        if best is None:
            return smallest is None or budget >= smallest.lower_bound
        return best.status is not Status.OPTIMAL

    def _improve(self, graph: Graph, budget: int, stop: threading.Event) -> None:
        state = self._state
        limit = min(state.time_limit, LONGEST)
        if self._is_ours():
            self.show()
        strategy, question = state.strategy, question_of(state, {})
        settings = {"time_limit": limit, "solver": state.solver, "cache": True, **question.options}
        settings["known"] = known_answer(state, question, budget)
        job = SolveJob.start(graph, budget, strategy, **settings)
        while not job.done:
            if stop.wait(POLL):
                job.cancel()
                break
            for report in job.poll()[-1:]:
                like = unknown_point(graph, strategy, budget)
                solution = assess_schedule(like, budget, report.schedule, report.lower_bound, seconds=report.seconds)
                self._take(graph, solution, stop, question.kinds)
        self._take(graph, job.solution(), stop, question.kinds)

    def _take(self, graph: Graph, solution: Solution, stop: threading.Event, kinds: tuple[str, ...]) -> None:
        """Let an answer join the curve if it says something new; the screen follows the curve."""
        state = self._state
        best = state.frontier.best(solution.budget) if state.frontier is not None else None
        cheaper = solution.cost is not None and (best is None or best.cost is None or solution.cost < best.cost)
        old = None if best is None else best.lower_bound
        tighter = solution.lower_bound is not None and (old is None or solution.lower_bound > old)
        if not (cheaper or tighter or (best is None and solution.status is Status.INFEASIBLE)):
            return
        join(state, graph, [solution], kinds=kinds)
        if best is None and self._is_ours() and not (stop.is_set() or state.busy):
            self.show()
