"""The chosen strategy: what it is asked on the state's graph, for which graphs it is not, and its name in plain words.

On a graph with choices of implementations, strategies that make none get its default implementations alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remat_explorer.errors import SolverError
from remat_explorer.explorer.state.implementation_choices import lift_schedule, lift_solution, monet_option
from remat_explorer.explorer.state.state import State
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import (
    AP_GREEDY,
    AP_SQRT_N,
    CHECKPOINT_SEQUENTIAL,
    DEFAULTS,
    ROTOR,
    STRATEGIES,
    CondensedGraph,
    Method,
    Selection,
    Solution,
    Status,
    Support,
    assess_schedule,
    chain_of,
    checkpoint_sequential_candidates,
    default_selection,
    default_strategy,
    method_of,
    require_chain,
    single_value_stretches,
)

_selections: list[Selection] = []  # the last one: to select takes as long as to check a graph
ONLY_CHAINS = "only for chains"  # in a list, where there is room for no more
_ADVICE = (". This strategy", "; use ")  # where an error begins to say what to do instead
KEEPS = "keep everything"
_NAMES = {"checkpoint-all": f"{KEEPS} (checkpoint-all)"}


@dataclass(frozen=True, eq=False)
class SolveRequest:
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

    def schedule_on_graph(self, schedule: Schedule) -> Schedule:
        """A schedule of the strategy, on the state's graph."""
        return schedule if self.selection is None else lift_schedule(schedule, self.selection)

    def solution_on_graph(self, solution: Solution) -> Solution:
        """An answer of the strategy, on the state's graph."""
        return solution if self.selection is None else lift_solution(solution, self.selection)

    def without_unproven_bound(self, solution: Solution, chosen: tuple[str, ...]) -> Solution:
        """An answer on the state's graph without what is not proven of all implementations that are chosen there."""
        if self.selection is None or not chosen or solution.schedule is None or solution.lower_bound is None:
            return solution
        return assess_schedule(solution, solution.budget, solution.schedule, None)


def chooses_implementations(strategy: str) -> bool:
    """Whether a strategy chooses among implementations.

    >>> chooses_implementations("monet"), chooses_implementations("optimal")
    (True, False)
    """
    method = method_of(strategy)
    return method is not None and method.choices is Support.YES


def solve_request(state: State, options: dict[str, Any] | None = None) -> SolveRequest:
    """What the state's strategy is asked.

    Args:
        state: with a graph.
        options: of the strategy; None for the state's.
    """
    graph, strategy = state.graph, state.strategy
    assert graph is not None
    given = dict(state.options) if options is None else dict(options)
    if not graph.has_choices or strategy not in STRATEGIES:
        return SolveRequest(graph, given, state.kinds)
    if not chooses_implementations(strategy):
        plain = default_implementations(graph)
        return SolveRequest(plain.graph, given, (), plain)
    if "implementations" in given:  # by name, in the options: what is proven then holds without any of them
        return SolveRequest(graph, given, ())
    return SolveRequest(graph, {**given, "implementations": monet_option(graph, state.kinds)}, state.kinds)


def default_implementations(graph: Graph) -> Selection:
    """The default implementation of every operation, the same object for the same graph."""
    if not _selections or _selections[0].origin is not graph:
        _selections[:] = [default_selection(graph)]
    return _selections[0]


def forget_default_implementations(graph: Graph | None) -> None:
    """Keep no selection of a graph that is not looked at any more."""
    if _selections and _selections[0].origin is graph:
        _selections.clear()


def remark_on(graph: Graph, solution: Solution) -> str:
    """What has to be said of a strategy's answer on a graph with choices, if the strategy makes none.

    >>> import remat_explorer as rx
    >>> remark_on(rx.linear(8), rx.solve(rx.linear(8), 4))
    ''
    """
    if not graph.has_choices or chooses_implementations(solution.strategy):
        return ""
    if solution.status is Status.OPTIMAL:
        return "proven for default implementations only, which this strategy runs"
    return "this strategy runs default implementations only"


def switch_default_strategy(state: State, graph: Graph) -> None:
    """Take the default strategy of graphs with choices in place of that of graphs without, and the other way back.

    >>> import remat_explorer as rx
    >>> state = State(strategy="monet")
    >>> state.strategy_without_choices = "optimal"
    >>> switch_default_strategy(state, rx.linear(8))
    >>> state.strategy
    'optimal'
    """
    if state.strategy != DEFAULTS[not graph.has_choices]:
        return
    if graph.has_choices:
        state.strategy_without_choices, state.strategy = state.strategy, default_strategy(graph)
    elif state.strategy_without_choices:
        state.strategy, state.strategy_without_choices = state.strategy_without_choices, ""


@dataclass(frozen=True)
class Restriction:
    """What has to be said of a strategy on a graph.

    Attributes:
        reason: why it refuses the graph, or to which part of it it applies.
        is_refused: whether it refuses the graph.
    """

    reason: str
    is_refused: bool


@memoize_by_identity
def unsuitable_strategies(graph: Graph) -> dict[str, Restriction]:
    """Each strategy that refuses a graph or applies to a part of it only; nothing of those that take it as it is.

    Of a graph with several implementations, the strategies that choose none are asked about the default ones.

    >>> from remat_explorer.instances import linear
    >>> unsuitable_strategies(linear(4))
    {}
    """
    asked = default_implementations(graph).graph if graph.has_choices else graph
    broken = _refusal(lambda: require_chain(asked, ""))
    found: dict[str, Restriction] = {}
    for name, method in STRATEGIES.items():
        if broken and method.general_graphs is Support.NO:
            found[name] = Restriction(broken, True)
        elif refusal := _refusal(lambda method=method: _parts(method, asked)):
            found[name] = Restriction(refusal, True)
        elif broken and (part := _parts(method, asked)):
            found[name] = Restriction(f"Takes this graph in part only: {part}", False)
    return found


def _refusal(ask: Callable[[], object]) -> str:
    """Why a strategy refuses a graph, without what to use instead; "" if it takes it."""
    try:
        ask()
    except SolverError as error:
        reason = str(error)
        for advice in _ADVICE:
            reason = reason.partition(advice)[0]
        return reason
    return ""


def _parts(method: Method, graph: Graph) -> str:
    """To which part of a graph that is no chain a method applies, in words; "" if it takes any graph.

    Raises:
        SolverError: if there is no such part.
    """
    if method is ROTOR:
        return _blocks([len(forward) for forward in chain_of(CondensedGraph.of(graph)).forward if forward])
    if method is CHECKPOINT_SEQUENTIAL:
        checkpoint_sequential_candidates(graph)
        return _blocks([len(block) for block in single_value_stretches(graph)])
    if method in (AP_SQRT_N, AP_GREEDY):
        return "its checkpoints are at articulation points, from which alone follows all that comes after them"
    return ""


def _blocks(sizes: list[int]) -> str:
    parts = f"falls into {len(sizes)} blocks, the largest of {max(sizes)}, which it takes as wholes"
    return f"the forward pass of {sum(sizes)} operations {parts}"


def strategy_groups() -> dict[str, list[str]]:
    """The strategies by where they come from.

    >>> {name: members[0] for name, members in strategy_groups().items()}
    {'best': 'optimal', "papers'": 'monet-paper', "PyTorch's and by hand": 'checkpoint-sequential'}
    """
    groups: dict[str, list[str]] = {"best": [], "papers'": [], "PyTorch's and by hand": []}
    for name in STRATEGIES:
        method = method_of(name)
        source = method.source if method is not None else ""
        is_paper = re.search(r"\b(19|20)\d\d\b", source) and not source.startswith("torch")
        kind = "best" if name in DEFAULTS.values() else "papers'" if is_paper else "PyTorch's and by hand"
        groups[kind].append(name)
    return groups


def describe_strategy(strategy: str) -> str:
    """A strategy by its name, and that of the one that keeps everything in plain words as well.

    >>> describe_strategy("optimal"), describe_strategy("checkpoint-all")
    ('optimal', 'keep everything (checkpoint-all)')
    """
    return _NAMES.get(strategy, strategy)
