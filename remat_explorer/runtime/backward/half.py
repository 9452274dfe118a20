"""Generated code of one backward half."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.fx import GraphModule, Node

from remat_explorer.capture.captured_program import Result
from remat_explorer.capture.generated_sources import drop_source_with
from remat_explorer.runtime.backward.handing_over import hand_over
from remat_explorer.runtime.emission import RESULTS, Emission, name_of, sources_of

Running = Generator[None, None, Sequence[torch.Tensor]]


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
        module: takes the resident tensors in order, None for a gradient that did not come, a list of what the forward
            half left, which it empties, and a list for gradients. It is a generator, which puts the gradients of one
            handover after another into that list, None for one that is None, and pauses after each; in the end it gives
            new contents of buffers.
        residents: the nodes of those tensors.
        reads: which of them, and of what the forward half left, it reads.
    """

    module: GraphModule
    residents: tuple[Node, ...]
    reads: frozenset[Node]

    @staticmethod
    def of(
        emission: Emission,
        cut: int,
        residents: Sequence[Node],
        saved: Saved,
        late: Sequence[Result],
        handovers: Sequence[Sequence[Result]],
    ) -> BackwardHalf:
        """The half that an emission writes.

        Args:
            emission: with nothing in it.
            cut: index of the first statement of the half.
            residents: what it may read of what is there before the plan, and the gradients of outputs.
            saved: what the forward half leaves.
            late: what it shall give.
            handovers: which of that it shall hand over on the way.
        """
        emission.take(residents)
        sources = {node: emission.nodes[node] for node in residents}
        left = emission.graph.placeholder("saved")
        gradients = emission.graph.placeholder("gradients")
        for node in saved.nodes:
            emission.nodes[node] = sources[node] = emission.graph.call_method("pop", (left,))
        for operation in saved.states:
            emission.states[operation] = emission.graph.call_method("pop", (left,))
        found: dict[Result, Node] = {}
        waiting = {result: sources_of(result) for result in late}
        for place in range(cut, len(emission.plan.statements)):
            emission.statements(place, place + 1)
            for result in [result for result, sources in waiting.items() if sources <= emission.nodes.keys()]:
                found[result] = emission.result(result)
                del waiting[result]
        end = emission.end([(result, found[result]) for result in late])
        given: dict[Result, Node | None] = dict(zip(late, cast(tuple[Any, ...], end.args[0]), strict=True))
        buffers = [result for result in late if result.kind == "buffer"]
        end.args = (tuple(given[result] for result in buffers),)
        end.meta[RESULTS] = ", ".join(map(name_of, buffers))
        own = dict(emission.separate([(result, given[result]) for handover in handovers for result in handover]))
        owners = {result: sources.get(result.of.node) for result in own if result.of}
        leaving = [[(result, own[result]) for result in handover] for handover in handovers]
        hand_over(emission.graph, gradients, leaving, owners)
        reads = frozenset(node for node, source in sources.items() if source.users)
        return BackwardHalf(drop_source_with(GraphModule(nn.Module(), emission.graph)), tuple(residents), reads)

    def run(
        self, residents: Mapping[Node, torch.Tensor | None], saved: list[Any], gradients: list[torch.Tensor | None]
    ) -> Running:
        """The half, ready to run up to its first pause.

        Args:
            residents: a tensor for each of the nodes in `residents`.
            saved: what the forward half left, the last to be popped first; emptied.
            gradients: where it puts gradients.
        """
        return self.module.forward(*[residents[node] for node in self.residents], saved, gradients)
