"""Which nodes of generated code may be tensors in one memory."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from remat_explorer.runtime.backward.overwriting import overwritten
from remat_explorer.runtime.backward.strides import RESHAPES, in_memory_of_its_own, laid_out


def memory_groups(graph: fx.Graph) -> dict[fx.Node, tuple[fx.Node, ...]]:
    """For each node the nodes that may share its memory, itself included, in the order of the code.

    A function that is written in Python and not among those of the backward half gives memory of its own, as the
    capture has found it to do.

    >>> import torch
    >>> graph = fx.Graph()
    >>> x = graph.placeholder("x")
    >>> turned = graph.call_function(torch.ops.aten.t.default, (x,))
    >>> product = graph.call_function(torch.ops.aten.mm.default, (x, turned))
    >>> {node: group for node, group in memory_groups(graph).items()}
    {x: (x, t_default), t_default: (x, t_default), mm_default: (mm_default,)}
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
    if target in (operator.getitem, laid_out, in_memory_of_its_own, *RESHAPES):
        map_arg(node.args[0], found.append)
    elif target is overwritten:
        map_arg(node.args[4][node.args[1]], found.append)  # type: ignore[index]
    elif isinstance(target, OpOverload) and any(entry.alias_info is not None for entry in target._schema.returns):
        for place, argument in enumerate(target._schema.arguments):
            if argument.alias_info is not None:
                given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
                map_arg(given, found.append)
    return found
