"""A plan in two halves, as autograd wants it: forward up to the outputs, backward from their gradients."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from remat_explorer.capture.captured_program import Program, Registers, Result
from remat_explorer.capture.generated_sources import drop_source_with
from remat_explorer.capture.sharded_parameters import REDUCE_SCATTER
from remat_explorer.plan import Plan
from remat_explorer.runtime.backward.cut import cut_of, needed_after
from remat_explorer.runtime.backward.emission import BackwardEmission
from remat_explorer.runtime.backward.half import BackwardHalf, Saved
from remat_explorer.runtime.backward.handovers import handovers_of
from remat_explorer.runtime.backward.outputs import OutputReads
from remat_explorer.runtime.emission import Emission, sources_of
from remat_explorer.runtime.generated_step import annotated_source, residents_of
from remat_explorer.runtime.shortage import held_before


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
        module = drop_source_with(GraphModule(nn.Module(), forward.graph))
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
