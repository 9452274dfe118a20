"""What a strategy is asked on the state's graph; plain strategies get the default implementations alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remat_explorer.explorer.state.answers import lifted, lifted_schedule
from remat_explorer.explorer.state.implementations import option_of
from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph
from remat_explorer.schedule import Schedule
from remat_explorer.solution import Solution, Status
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.method import Support
from remat_explorer.solvers.monet.selections import Selection, default_selection
from remat_explorer.solvers.registry import DEFAULTS, default_strategy, method_of
from remat_explorer.solvers.sweeps.own_points import assess_schedule


@dataclass(frozen=True, eq=False)
class StateQuestion:
    """A graph with the options of a strategy, and how its schedules become schedules of the state's graph.

    Attributes:
        graph: what the strategy is asked about.
        options: its keyword arguments.
        kinds: of implementations that it may choose.
        selection: where it is asked about the default implementations alone.
    """

    graph: Graph
    options: dict[str, Any]
    kinds: tuple[str, ...]
    selection: Selection | None = None

    def schedule(self, schedule: Schedule) -> Schedule:
        """A schedule of the strategy, on the state's graph."""
        return schedule if self.selection is None else lifted_schedule(schedule, self.selection)

    def solution(self, solution: Solution) -> Solution:
        """An answer of the strategy, on the state's graph."""
        return solution if self.selection is None else lifted(solution, self.selection)

    def shown(self, solution: Solution, chosen: tuple[str, ...]) -> Solution:
        """An answer on the state's graph without what is not proven of all implementations that are chosen there."""
        if self.selection is None or not chosen or solution.schedule is None or solution.lower_bound is None:
            return solution
        return assess_schedule(solution, solution.budget, solution.schedule, None)


def takes_choices(strategy: str) -> bool:
    """Whether a strategy chooses among implementations.

    >>> takes_choices("monet"), takes_choices("optimal")
    (True, False)
    """
    method = method_of(strategy)
    return method is not None and method.choices is Support.YES


def question_of(state: State, options: dict[str, Any] | None = None) -> StateQuestion:
    """What the state's strategy is asked.

    Args:
        state: with a graph.
        options: of the strategy; None for the state's.
    """
    graph, strategy = state.graph, state.strategy
    assert graph is not None
    given = dict(state.options) if options is None else dict(options)
    if not graph.has_choices or strategy not in STRATEGIES:
        return StateQuestion(graph, given, state.kinds)
    if not takes_choices(strategy):
        plain = plain_selection(graph)
        return StateQuestion(plain.graph, given, (), plain)
    if "implementations" in given:  # by name, in the options: what is proven then holds without any of them
        return StateQuestion(graph, given, ())
    return StateQuestion(graph, {**given, "implementations": option_of(graph, state.kinds)}, state.kinds)


_selections: list[Selection] = []  # the last one: to select takes as long as to check a graph


def plain_selection(graph: Graph) -> Selection:
    """The default implementation of every operation, the same object for the same graph."""
    if not _selections or _selections[0].origin is not graph:
        _selections[:] = [default_selection(graph)]
    return _selections[0]


def forget_selection(graph: Graph | None) -> None:
    """Keep no selection of a graph that is not looked at any more."""
    if _selections and _selections[0].origin is graph:
        _selections.clear()


def remark_on(graph: Graph, solution: Solution) -> str:
    """What has to be said of a strategy's answer on a graph with choices, if the strategy makes none.

    >>> import remat_explorer as rx
    >>> remark_on(rx.linear(8), rx.solve(rx.linear(8), 4))
    ''
    """
    if not graph.has_choices or takes_choices(solution.strategy):
        return ""
    if solution.status is Status.OPTIMAL:
        return "proven for default implementations only, which this strategy runs"
    return "this strategy runs default implementations only"


def choose_strategy(state: State, graph: Graph) -> None:
    """Take the default strategy of graphs with choices in place of that of graphs without, and the other way back.

    >>> import remat_explorer as rx
    >>> state = State(strategy="monet")
    >>> state.usual_strategy = "optimal"
    >>> choose_strategy(state, rx.linear(8))
    >>> state.strategy
    'optimal'
    """
    if state.strategy != DEFAULTS[not graph.has_choices]:
        return
    if graph.has_choices:
        state.usual_strategy, state.strategy = state.strategy, default_strategy(graph)
    elif state.usual_strategy:
        state.strategy, state.usual_strategy = state.usual_strategy, ""
