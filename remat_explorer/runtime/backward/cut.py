"""Where a plan is cut into the half that belongs to the forward pass and the one that belongs to the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch.fx import Node

from remat_explorer.capture.captured_program import Body
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.emission import reads


def cut_of(plan: Plan) -> int:
    """The index of the first statement that belongs to the backward half.

    The forward half ends with the last first run of an operation of the forward pass, and what is freed after it.
    Repetitions that follow serve the backward pass, so they wait for it, and so do optional operations.

    Raises:
        ExecutionError: if the plan begins the backward pass before the forward pass is complete.
    """
    operations = plan.graph.operations
    first_runs = [i for i, s in enumerate(plan.statements) if isinstance(s, Compute) and s.first]
    mandatory = [i for i in first_runs if not operations[plan.statements[i].operation].optional]  # type: ignore[union-attr]
    forward = [i for i in mandatory if operations[plan.statements[i].operation].phase == "forward"]  # type: ignore[union-attr]
    backward = [i for i in mandatory if i not in set(forward)]
    if forward and backward and forward[-1] > backward[0]:
        raise ExecutionError(
            f"the plan begins the backward pass with {plan.text(plan.statements[backward[0]])!r} before it has run "
            f"{plan.text(plan.statements[forward[-1]])!r}; such a plan can be measured, but not train a model"
        )
    cut = forward[-1] + 1 if forward else 0
    while cut < len(plan.statements) and not isinstance(plan.statements[cut], Compute):
        cut += 1
    return cut


def needed_after(
    plan: Plan, cut: int, body_of: Callable[[Compute], Body], read_last: Iterable[set[Node]]
) -> list[Node]:
    """What the backward half reads without having made it, in order of first use.

    Args:
        plan: the whole plan.
        cut: `cut_of` it.
        body_of: the calls of a statement.
        read_last: what the results of the backward half are made from, each a set of nodes.
    """
    made: set[Node] = set()
    needed: dict[Node, None] = {}

    def read(nodes: set[Node]) -> None:
        needed.update(dict.fromkeys(sorted(nodes - made, key=lambda node: node.name)))

    for statement in plan.statements[cut:]:
        if isinstance(statement, Compute):
            body = body_of(statement)
            read(reads(body))
            made |= {node for value, node in body.outputs.items() if value not in statement.drops}
    for nodes in read_last:
        read(nodes)
    return list(needed)
