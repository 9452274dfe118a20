"""A plan in two parts, as autograd wants it: forward up to the outputs, backward from their gradients.

`ForwardBackward.of` generates the code; its backward pass is made anew for gradients of some of the outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from torch import nn
from torch.fx import GraphModule, Node

from remat_explorer.capture.generated_sources import with_its_source
from remat_explorer.capture.operations.collectives import REDUCE_SCATTER
from remat_explorer.capture.operations.program import Program, Registers, Result
from remat_explorer.plan import Plan
from remat_explorer.runtime.backward_emitter import BackwardEmission
from remat_explorer.runtime.emitter import RESULTS, Emission, cut_of, name_of, needed_after, sources_of
from remat_explorer.runtime.generated_step import annotated_source, residents_of
from remat_explorer.runtime.gradient_handover import hand_over, handovers_of
from remat_explorer.runtime.oom_errors import held_before
from remat_explorer.runtime.output_guard import OutputReads

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
        return BackwardHalf(with_its_source(GraphModule(nn.Module(), emission.graph)), tuple(residents), reads)

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


@dataclass(frozen=True, eq=False)
class Halves:
    """Generated code of both halves.

    Attributes:
        plan, program, device: what the code was generated from.
        cut: index of the first statement of the backward half.
        forward_module: takes the resident tensors but the tangents; gives the results of ``early``, then what the
            backward half reads.
        early, late: the program's results, by the half that computes them.
        residents, later: what each half takes of what is there before the plan; the second one takes the tangents, too.
        saved: what the forward half leaves for the other one.
        retains: whether the other one may run several times, which the budget is for.
    """

    plan: Plan
    program: Program
    device: torch.device
    cut: int
    forward_module: GraphModule
    early: tuple[Result, ...]
    late: tuple[Result, ...]
    residents: tuple[Node, ...]
    later: tuple[Node, ...]
    saved: Saved
    retains: bool = False
    _made: dict[tuple[frozenset[Node] | None, bool], BackwardHalf] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(plan: Plan, program: Program, device: torch.device, retains: bool = False) -> Halves:
        """Generate the code.

        Args:
            plan, program, device: what for.
            retains: whether the backward half may run several times.

        Raises:
            ExecutionError: as `cut_of`.
        """
        cut = cut_of(plan)
        tangents = {entry.node for entry in program.inputs if entry.kind == "tangent"}
        residents = tuple(node for node in residents_of(program) if node not in tangents)
        forward = Emission(plan, program, device)
        forward.take(residents)
        forward.statements(0, cut)
        forward.bodies(program.epilogue)
        early = tuple(r for r in program.results if sources_of(r) <= forward.nodes.keys())
        late = tuple(r for r in program.results if r not in early)
        needed = needed_after(plan, cut, program.body, map(sources_of, late))
        later = tuple(node for node in residents_of(program) if node in needed)
        saved = Saved(tuple(n for n in needed if n not in {*residents, *tangents}), tuple(forward.states))
        forward.output(early, [*(forward.nodes[node] for node in saved.nodes), *forward.states.values()])
        module = with_its_source(GraphModule(nn.Module(), forward.graph))
        return Halves(plan, program, device, cut, module, early, late, residents, later, saved, retains)

    def forward(self, registers: Registers) -> tuple[list[torch.Tensor], list[Any]]:
        """The results of ``early``, and what the backward half needs; ``registers`` keeps the residents."""
        outputs = self.forward_module.forward(*[registers[node] for node in self.residents])
        count = len(self.early)
        return list(outputs[:count]), list(outputs[count:])[::-1]

    @property
    def left_bytes(self) -> int:
        """What the forward half leaves in memory, outputs included, by the plan."""
        after = self.plan.timeline.after[self.cut - 1] if self.cut else self.plan.graph.resident_bytes
        return int(after) - self.plan.graph.resident_bytes

    @cached_property
    def scatters(self) -> bool:
        """Whether gradients are scattered among the processes that hold the model."""
        calls = (call for body in self.program.bodies for call in body.calls)
        return any(call.target is REDUCE_SCATTER for call in calls)

    @cached_property
    def summed(self) -> str:
        """The first parameter or input that one pass uses several times, so that it has a sum of gradients; or ""."""
        gradients = [result for result in self.program.results if result.kind == "gradient"]
        return next((result.name for result in gradients if result.node.meta.get("is_gradient_acc")), "")

    @cached_property
    def output_reads(self) -> OutputReads:
        """What the backward half reads, for outputs that are written to."""
        return OutputReads(self.plan, self.program, self.cut)

    @cached_property
    def handovers(self) -> tuple[tuple[Result, ...], ...]:
        """The gradients of the backward half, grouped by when they are handed over."""
        return handovers_of(self.plan, self.program, self.cut, [r for r in self.late if r.kind == "gradient"])

    @property
    def planned_backward(self) -> BackwardHalf:
        """The backward half for the gradients of all outputs, with the strides that they have in the captured graph."""
        return self.backward(None)

    def backward(self, missing: frozenset[Node] | None, retaining: bool = False) -> BackwardHalf:
        """A backward half; made once for each pair of arguments.

        Args:
            missing: the tangents that did not come, where others came, in any strides; None where all came as in the
                captured graph.
            retaining: whether what the forward half left shall be as before afterwards.
        """
        key = missing, retaining
        with self._making:
            if key not in self._made:
                made = Emission(self.plan, self.program, self.device)
                if missing is not None:
                    made = BackwardEmission(self.plan, self.program, self.device, missing)
                if retaining:
                    made.kept = set(held_before(self.plan, self.cut))
                self._made[key] = BackwardHalf.of(made, self.cut, self.later, self.saved, self.late, self.handovers)
            return self._made[key]

    @property
    def source(self) -> str:
        """The Python source of both halves, with the plan's statements as comments."""
        modules = self.forward_module, self.planned_backward.module
        forward, backward = (annotated_source(module, self.plan) for module in modules)
        return f"{forward}\n\n{backward.replace('def forward(', 'def backward(', 1)}"
