"""Generated code of one backward half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from remat_explorer.capture.generated_sources import with_its_source
from remat_explorer.capture.operations.program import Result
from remat_explorer.runtime.emission import Emission


@dataclass(frozen=True, eq=False)
class Saved:
    """What the forward half leaves in memory for the backward half.

    Attributes:
        nodes: of the captured graph, whose tensors it leaves, in order.
        states: operations that draw random numbers and run again, whose generator states come after the tensors.
    """

    nodes: tuple[Node, ...]
    states: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BackwardHalf:
    """A backward half for gradients of some of the outputs.

    Attributes:
        module: takes the resident tensors in order, None for a gradient that did not come, then a list of what the
            forward half left, which it empties; gives the results, None for a gradient that is None.
        residents: the nodes of those tensors.
        reads: which of them, and of what the forward half left, it reads.
    """

    module: GraphModule
    residents: tuple[Node, ...]
    reads: frozenset[Node]

    @staticmethod
    def of(
        emission: Emission, cut: int, residents: Sequence[Node], saved: Saved, results: Sequence[Result]
    ) -> BackwardHalf:
        """The half that an emission writes.

        Args:
            emission: with nothing in it.
            cut: index of the first statement of the half.
            residents: what it may read of what is there before the plan, and the gradients of outputs.
            saved: what the forward half leaves.
            results: what it shall give.
        """
        emission.take(residents)
        sources = {node: emission.nodes[node] for node in residents}
        box = emission.graph.placeholder("saved")
        for node in saved.nodes:
            emission.nodes[node] = sources[node] = emission.graph.call_method("pop", (box,))
        for operation in saved.states:
            emission.states[operation] = emission.graph.call_method("pop", (box,))
        emission.statements(cut, len(emission.plan.statements))
        emission.output(results)
        reads = frozenset(node for node, source in sources.items() if source.users)
        return BackwardHalf(with_its_source(GraphModule(nn.Module(), emission.graph)), tuple(residents), reads)

    def run(self, residents: Mapping[Node, torch.Tensor | None], saved: list[Any]) -> Sequence[torch.Tensor | None]:
        """The results.

        Args:
            residents: a tensor for each of the nodes in `residents`.
            saved: what the forward half left, the last to be popped first; emptied.
        """
        return self.module.forward(*[residents[node] for node in self.residents], saved)
