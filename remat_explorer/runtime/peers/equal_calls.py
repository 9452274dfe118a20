"""Calls of a joint graph that compute the same: what elimination of common subexpressions would merge."""

from __future__ import annotations

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from remat_explorer.capture.graph_rewrites import is_random


def first_equals(module: GraphModule) -> dict[str, str]:
    """For each call the name of the first call with the same operator and equal arguments: its own, if it is that one.

    Random calls are equal to none but themselves.

    >>> from torch import add, neg
    >>> from torch.fx import Graph
    >>> graph = Graph()
    >>> x = graph.placeholder("x")
    >>> a, b = (graph.call_function(neg, (x,)) for _ in range(2))
    >>> c, d = (graph.call_function(add, (node, 1)) for node in (a, b))
    >>> first_equals(GraphModule({}, graph))
    {'neg': 'neg', 'neg_1': 'neg', 'add': 'add', 'add_1': 'add'}
    """
    first: dict[tuple[object, str, str], Node] = {}
    equal: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or is_random([node]):
            equal[node] = node
            continue
        args, kwargs = map_arg((node.args, node.kwargs), equal.__getitem__)
        equal[node] = first.setdefault((node.target, str(args), str(kwargs)), node)
    return {node.name: keeper.name for node, keeper in equal.items() if node.op == "call_function"}
