"""Which gradients leave the backward pass together, and where, so that autograd uses them while the code goes on.

A gradient leaves when its memory has been read for the last time, and the parameter, too: what is done with it
afterwards, such as averaging it with those of other processes, or a step of an optimizer in a hook, reaches no later
statement. The code then lets go of it and pauses, so that it is in memory once. Handing over takes some time, so
several gradients leave together (`group_gradients`).
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Mapping, Sequence

from torch import fx
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import map_arg

from remat_explorer.capture import Program, Result
from remat_explorer.offload import TransferPlan
from remat_explorer.plan import Compute
from remat_explorer.runtime.copies import AnyPlan
from remat_explorer.runtime.emitter import RESULTS, nodes_read, result_name, source_nodes
from remat_explorer.runtime.strided_gradients import RESHAPES, copy_if_shared, with_strides, write_over

MIN_SECONDS = 0.002  # between two handovers: handing over takes about a hundredth of that
MAX_HANDOVERS = 64
Gradient = tuple[Result, fx.Node | None]  # None of a gradient that is None
_HANDED = re.compile(r"\w+ = (\w+)\.extend\(")


def group_gradients(
    plan: AnyPlan, program: Program, split: int, gradients: Sequence[Result]
) -> tuple[tuple[Result, ...], ...]:
    """The gradients in the order in which a plan is done with them, in handovers.

    A handover ends with the first gradient that is ready when the plan has run for `MIN_SECONDS` since the handover
    before, by the costs of its graph, and for one part in `MAX_HANDOVERS` of the backward pass, which begins with
    statement ``split``. Of a plan that sends values, all leave together: if a copy fails, none has left.
    """
    if isinstance(plan, TransferPlan):
        return (tuple(gradients),) if gradients else ()
    spent, seconds = [], 0.0
    last: dict[Node, int] = {}  # the last statement that makes or reads something
    for place, statement in enumerate(plan.statements[split:]):
        if isinstance(statement, Compute):
            body = program.body(statement)
            last |= dict.fromkeys((*nodes_read(body), *body.outputs.values()), place)
            way = plan.graph.operations[statement.operation].implementations[statement.implementation - 1]
            seconds += way.cost
        spent.append(seconds)
    ready = [max(last.get(node, 0) for node in (*source_nodes(one), one.of.node)) for one in gradients if one.of]
    least = max(MIN_SECONDS, seconds / MAX_HANDOVERS)
    handovers: list[list[Result]] = [[]]
    before = 0.0
    in_order = sorted(zip(ready, gradients, strict=True), key=operator.itemgetter(0))
    for place, together in itertools.groupby(in_order, key=operator.itemgetter(0)):
        handovers[-1] += [gradient for _, gradient in together]
        if spent[place] - before >= least:
            handovers.append([])
            before = spent[place]
    return tuple(tuple(handover) for handover in handovers if handover)


def hand_over(
    graph: fx.Graph, box: fx.Node, handovers: Sequence[Sequence[Gradient]], owners: Mapping[Result, fx.Node | None]
) -> None:
    """Let code put the gradients of each handover into a list, and pause then.

    The code is complete, and no gradient leads to its end. ``box`` is the argument that takes the list, and ``owners``
    has for each gradient the argument in which its parameter comes, None where the code does not read it.
    """
    groups = memory_groups(graph)
    order = {node: place for place, node in enumerate(graph.nodes)}
    at, reached = box, order[box]
    tensors = [[node for one, node in handover for node in (node, owners.get(one)) if node] for handover in handovers]
    reads = [[_last_read(groups[node], order) for node in nodes] for nodes in tensors]
    for handover, nodes in zip(handovers, reads, strict=True):
        last = max(nodes, key=order.__getitem__, default=box)
        if order[last] > reached:
            at, reached = last, order[last]
        with graph.inserting_after(at):
            at = graph.call_method("extend", (box, tuple(node for _, node in handover)))
        at.meta[RESULTS] = ", ".join(result_name(result) for result, _ in handover)
    graph.on_generate_code(lambda before: lambda body: with_pauses(before(body) if before else body, str(box)))


def separate_memory(graph: fx.Graph, gradients: Sequence[Gradient], tangents: set[fx.Node]) -> list[Gradient]:
    """The gradients with copies in place of those that lie in the memory of another one, or of an output's.

    The gradient of an input may lie in that of an output's, and have its strides, as in plain PyTorch. Those of
    outputs, ``tangents``, belong to the caller. Gradients are in the order in which they leave; complete code is
    changed in place.
    """
    groups = memory_groups(graph)
    order = {node: place for place, node in enumerate(graph.nodes)}
    taken: dict[fx.Node, list[fx.Node]] = {}  # by the first of a group: what somebody else has of it
    own: list[Gradient] = []
    ends: dict[fx.Node, fx.Node] = {}
    for result, node in gradients:
        if node is not None:
            group = groups[node]
            rivals = taken.setdefault(group[0], [member for member in group if member in tangents])
            others = [one for one in rivals if one not in tangents] if _of_an_input(result) else rivals
            made = node
            if others:
                with graph.inserting_after(ends.get(group[0]) or _last_read(group, order)):
                    made = graph.call_function(copy_if_shared, (node, tuple(others)))
                ends[group[0]] = made
            rivals.append(made)
            node = made
        own.append((result, node))
    return own


def memory_groups(graph: fx.Graph) -> dict[fx.Node, tuple[fx.Node, ...]]:
    """For each node the nodes that may share its memory, itself included, in the order of the code.

    A function that is written in Python and not among those of the backward pass gives memory of its own, as the
    capture has found it to do.
    """
    groups: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        mine = groups[node] = [node]
        for source in _memory_of(node):
            if groups[source] is not mine:
                groups[source] += mine
                mine = groups[source]
                groups.update(dict.fromkeys(mine, mine))
    return {node: tuple(group) for node, group in groups.items()}


def _memory_of(node: fx.Node) -> Iterable[fx.Node]:
    """The arguments in whose memory a call may put its result."""
    target = node.target
    found: list[fx.Node] = []
    if target in (operator.getitem, with_strides, copy_if_shared, *RESHAPES):
        map_arg(node.args[0], found.append)
    elif target is write_over:
        map_arg(node.args[4][node.args[1]], found.append)  # type: ignore[index]
    elif isinstance(target, OpOverload) and any(entry.alias_info is not None for entry in target._schema.returns):
        for place, argument in enumerate(target._schema.arguments):
            if argument.alias_info is not None:
                given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
                map_arg(given, found.append)
    return found


def _of_an_input(result: Result) -> bool:
    return result.of is not None and result.of.kind == "input"


def with_pauses(body: list[str], box: str) -> list[str]:
    """Generated code that pauses after each call that puts gradients into the list called ``box``.

    >>> with_pauses(["extend = box.extend((a,))", ";  a = extend = None\\n", "b = box.pop()\\n"], "box")
    ['extend = box.extend((a,));  a = extend = None\\n', 'yield\\n', 'b = box.pop()\\n']
    """
    lines: list[str] = []
    for line in "".join(body).splitlines(keepends=True):
        lines.append(line)
        found = _HANDED.match(line)
        if found and found[1] == box:
            lines.append("yield\n")
    return lines


def _last_read(group: Sequence[fx.Node], order: dict[fx.Node, int]) -> fx.Node:
    """The last node that makes or reads a tensor of a group."""
    return max((node for member in group for node in (member, *member.users)), key=order.__getitem__)
