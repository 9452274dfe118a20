"""Where generated code hands gradients over, so that autograd uses them while the code goes on.

A gradient leaves when its memory has been read for the last time, and the parameter, too: what is done with it
afterwards, such as averaging it with those of other processes, or a step of an optimizer in a hook, reaches no later
statement. The code then lets go of it and pauses, so that it is in memory once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import fx

from remat_explorer.capture.captured_program import Result
from remat_explorer.runtime.backward.aliases import memory_groups
from remat_explorer.runtime.backward.strides import in_memory_of_its_own
from remat_explorer.runtime.emission import RESULTS, name_of

Gradient = tuple[Result, fx.Node | None]  # None of a gradient that is None
_HANDED = re.compile(r"\w+ = (\w+)\.extend\(")


def hand_over(
    graph: fx.Graph, box: fx.Node, handovers: Sequence[Sequence[Gradient]], owners: Mapping[Result, fx.Node | None]
) -> None:
    """Let code put the gradients of each handover into a list, and pause then.

    Args:
        graph: complete code, to whose end no gradient leads.
        box: the argument that takes the list.
        handovers: the gradients that leave together, in order.
        owners: for each gradient the argument in which its parameter comes, None where the code does not read it.
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
        at.meta[RESULTS] = ", ".join(name_of(result) for result, _ in handover)
    graph.on_generate_code(lambda before: lambda body: pausing(before(body) if before else body, str(box)))


def in_memory_of_their_own(graph: fx.Graph, gradients: Sequence[Gradient], tangents: set[fx.Node]) -> list[Gradient]:
    """The gradients with copies in place of those that lie in the memory of another one, or of an output's.

    The gradient of an input may lie in that of an output's, and have its strides, as in plain PyTorch.

    Args:
        graph: complete code; changed in place.
        gradients: in the order in which they leave.
        tangents: arguments that are gradients of outputs, and belong to the caller.
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
                    made = graph.call_function(in_memory_of_its_own, (node, tuple(others)))
                ends[group[0]] = made
            rivals.append(made)
            node = made
        own.append((result, node))
    return own


def _of_an_input(result: Result) -> bool:
    return result.of is not None and result.of.kind == "input"


def pausing(body: list[str], box: str) -> list[str]:
    """Generated code that pauses after each call that puts gradients into the list called ``box``.

    >>> pausing(["extend = box.extend((a,))", ";  a = extend = None\\n", "b = box.pop()\\n"], "box")
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
