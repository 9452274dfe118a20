"""For which strategies a graph is not, or in part only, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remat_explorer.errors import SolverError
from remat_explorer.explorer.state.questions import plain_selection
from remat_explorer.graph import Graph
from remat_explorer.memoize import memoize_by_identity
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.condensed import Condensed
from remat_explorer.solvers.method import Method, Support
from remat_explorer.solvers.methods.checkpoint_sequential import METHOD as CHECKPOINT_SEQUENTIAL
from remat_explorer.solvers.methods.checkpoint_sequential import blocks, checkpoint_sequential_candidates
from remat_explorer.solvers.methods.chen import AP_GREEDY, AP_SQRT_N, require_chain
from remat_explorer.solvers.methods.rotor import METHOD as ROTOR
from remat_explorer.solvers.persistent.block_chain import chain_of

ONLY_CHAINS = "only for chains"  # in a list, where there is room for no more
ADVICE = (". This strategy", "; use ")  # where an error begins to say what to do instead


@dataclass(frozen=True)
class Suitability:
    """What has to be said of a strategy on a graph.

    Attributes:
        reason: why it refuses the graph, or to which part of it it applies.
        is_refused: whether it refuses the graph.
    """

    reason: str
    is_refused: bool


@memoize_by_identity
def fits(graph: Graph) -> dict[str, Suitability]:
    """Each strategy that refuses a graph or applies to a part of it only; nothing of those that take it as it is.

    Of a graph with several implementations, the strategies that choose none are asked about the default ones.

    >>> from remat_explorer.instances import linear
    >>> fits(linear(4))
    {}
    """
    asked = plain_selection(graph).graph if graph.has_choices else graph
    broken = _refusal(lambda: require_chain(asked, ""))
    found: dict[str, Suitability] = {}
    for name, method in STRATEGIES.items():
        if broken and method.general_graphs is Support.NO:
            found[name] = Suitability(broken, True)
        elif refusal := _refusal(lambda method=method: _parts(method, asked)):
            found[name] = Suitability(refusal, True)
        elif broken and (part := _parts(method, asked)):
            found[name] = Suitability(f"Takes this graph in part only: {part}", False)
    return found


def _refusal(ask: Callable[[], object]) -> str:
    """Why a strategy refuses a graph, without what to use instead; "" if it takes it."""
    try:
        ask()
    except SolverError as error:
        reason = str(error)
        for advice in ADVICE:
            reason = reason.partition(advice)[0]
        return reason
    return ""


def _parts(method: Method, graph: Graph) -> str:
    """To which part of a graph that is no chain a method applies, in words; "" if it takes any graph.

    Raises:
        SolverError: if there is no such part.
    """
    if method is ROTOR:
        return _blocks([len(forward) for forward in chain_of(Condensed.of(graph)).forward if forward])
    if method is CHECKPOINT_SEQUENTIAL:
        checkpoint_sequential_candidates(graph)
        return _blocks([len(block) for block in blocks(graph)])
    if method in (AP_SQRT_N, AP_GREEDY):
        return "its checkpoints are at articulation points, from which alone follows all that comes after them"
    return ""


def _blocks(sizes: list[int]) -> str:
    parts = f"falls into {len(sizes)} blocks, the largest of {max(sizes)}, which it takes as wholes"
    return f"the forward pass of {sum(sizes)} operations {parts}"
