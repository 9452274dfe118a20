"""Which of PyTorch's operators an operation of our graph is, as far as the partitioner tells operators apart.

The partitioner has lists: what is cheap to compute again since a compiler fuses it (pointwise operators and views),
what is random, and what is compute intensive (matrix products, convolutions, attention). A graph has names only, the
operator's own ("convolution_3") or the one for people ("features.3 conv2d + relu (2)"), and those are looked up here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._functorch.partitioners import get_default_op_list
from torch._ops import OpOverloadPacket
from torch.fx import Graph as CallGraph

from remat_explorer.capture.graph_assembly import operator_name
from remat_explorer.graph import Graph
from remat_explorer.graph.operator_words import words

Operator = Callable[..., Any]

aten = torch.ops.aten
COMPUTE_INTENSIVE = aten.mm  # stands for an operation that only its cost tells something about
UNLISTED = aten.embedding  # in none of the lists: kept unless the budget is below 1, and then free to run again
CHEAP_COPY = aten.clone  # for views, which are operations of our graph only where they write a storage of their own


def operators_of(graph: Graph) -> list[Operator]:
    """The operator that stands for each operation before the partitioner.

    Of joined operations the dearest counts: compute intensive before unlisted, random and cheap ones. Where no name
    of the forward pass is that of a compute-intensive operator, as in graphs of layers, each operation counts as one,
    so that its cost and its size decide; else the budget, which is spent on these alone, would decide nothing.

    >>> from remat_explorer.instances import linear
    >>> set(operators_of(linear(4))) == {COMPUTE_INTENSIVE}
    True
    """
    dear = get_default_op_list().compute_intensive_ops
    operators = [_dearest([_listed().get(word) for word in words(node.name)]) for node in graph.operations]
    forward = (operator for operator, backward in zip(operators, graph.is_backward, strict=True) if not backward)
    return operators if any(operator in dear for operator in forward) else [COMPUTE_INTENSIVE] * graph.n


def _dearest(operators: Sequence[Operator | None]) -> Operator:
    lists = get_default_op_list()
    for dear in (lists.compute_intensive_ops, (None,), lists.random_ops):
        for operator in operators:
            if operator in dear:
                return operator or UNLISTED
    return next(operator or UNLISTED for operator in operators)


@cache
def _listed() -> dict[str, Operator]:
    """The operators in PyTorch's lists by their names, its own and those that people see."""
    lists = get_default_op_list()
    operators: dict[str, Operator] = {"convolution": aten.convolution}
    calls = CallGraph()
    for group in (lists.recomputable_ops, lists.random_ops, lists.compute_intensive_ops):
        for operator in group:
            if isinstance(operator, OpOverloadPacket):
                stands = CHEAP_COPY if operator in lists.view_ops else operator
                own = str(operator).removeprefix("aten.")
                shown = own if own.startswith("convolution") else operator_name(calls.call_function(operator))
                operators |= {own: stands, shown: stands}
    return operators
