"""Branch and bound as it happens: every linear program that is solved, with its bound and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

WHOLE = 1e-6  # a variable this close to a whole number is one

Fate = Literal["branched", "schedule", "no better", "infeasible", "left open"]


@dataclass(frozen=True)
class Node:
    """One linear program.

    Attributes:
        number: in the order in which they are solved, from 0.
        parent: number of the node that was branched, None for the root.
        fixed: what is fixed here beyond the parent, such as "R[5,2] = 1".
        bound: optimum of the linear program, rounded up where costs are whole; infinity if it is infeasible.
        fate: "branched" on a fraction, a "schedule" that is better than all before, "no better" than one that is
            known, "infeasible", or "left open" at the limit.
        incumbent: cost of the best schedule after this node, infinity if there is none yet.
        proven: lower bound on the cost of every schedule after this node.
    """

    number: int
    parent: int | None
    fixed: str
    bound: float
    fate: Fate
    incumbent: float
    proven: float


def branch_and_bound(
    model: Any, choices: Mapping[str, Any], most: int = 200, whole_costs: bool = True
) -> tuple[Node, ...]:
    """Solve a program of python-mip by branching on the first choice that is a fraction.

    Until there is a schedule, the deepest node comes next, and of its two the one with zero, since a good schedule has
    few ones. From then on the node of the least bound comes next.

    Args:
        model: minimizes; its bounds of the choices are changed here and set back at the end.
        choices: the variables of zeros and ones, by name, in the order in which they are branched on.
        most: linear programs to be solved.
        whole_costs: whether every schedule costs a whole number, so that bounds may be rounded up.

    Returns:
        The nodes in the order in which they were solved.

    >>> import mip
    >>> model = mip.Model(solver_name=mip.HIGHS)
    >>> model.verbose = 0
    >>> x = [model.add_var(var_type=mip.BINARY) for _ in range(3)]
    >>> model += 2 * mip.xsum(x) >= 3
    >>> model.objective = mip.minimize(mip.xsum(x))
    >>> nodes = branch_and_bound(model, {f"x{i}": one for i, one in enumerate(x)})
    >>> nodes[0].bound, nodes[-1].incumbent, nodes[-1].proven
    (2.0, 2.0, 2.0)
    """
    nodes: list[Node] = []
    waiting: list[tuple[float, int | None, dict[str, int]]] = [(-math.inf, None, {})]
    incumbent = math.inf
    try:
        while waiting and len(nodes) < most:
            diving = math.isinf(incumbent)
            waiting.sort(key=lambda one, diving=diving: (0.0 if diving else one[0], -len(one[2])))
            _, parent, fixed = waiting.pop(0)
            bound, fractions = _relaxed(model, choices, fixed, whole_costs)
            fate: Fate = "branched"
            if math.isinf(bound):
                fate = "infeasible"
            elif bound >= incumbent:
                fate = "no better"
            elif not fractions:
                fate, incumbent = "schedule", bound
                waiting = [one for one in waiting if one[0] < incumbent]
            else:
                waiting += [(bound, len(nodes), {**fixed, fractions[0]: value}) for value in (0, 1)]
            last = next(reversed(fixed.items()), None)
            told = f"{last[0]} = {last[1]}" if last else ""
            proven = min([incumbent, *(one[0] for one in waiting)])
            nodes.append(Node(len(nodes), parent, told, bound, fate, incumbent, proven))
    finally:
        for choice in choices.values():
            choice.lb, choice.ub = 0, 1
    left = {parent for _, parent, _ in waiting}
    return tuple(replace(node, fate="left open") if node.number in left else node for node in nodes)


def _relaxed(
    model: Any, choices: Mapping[str, Any], fixed: Mapping[str, int], whole_costs: bool
) -> tuple[float, list[str]]:
    """Optimum of the linear program with some choices fixed, and the choices that are fractions."""
    import mip

    for name, choice in choices.items():
        choice.lb, choice.ub = (fixed[name], fixed[name]) if name in fixed else (0, 1)
    if model.optimize(relax=True) is not mip.OptimizationStatus.OPTIMAL:
        return math.inf, []
    found = {name: choice.x for name, choice in choices.items()}
    cost = float(model.objective_value)
    bound = float(math.ceil(cost - WHOLE)) if whole_costs else cost
    return bound, [name for name, x in found.items() if abs(x - round(x)) > WHOLE]
