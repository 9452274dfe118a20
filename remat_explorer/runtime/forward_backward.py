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

from remat_explorer.capture import REDUCE_SCATTER, Program, Registers, Result, drop_source_with
from remat_explorer.runtime.backward_emitter import BackwardEmitter
from remat_explorer.runtime.copies import AnyPlan, Copies, Tier
from remat_explorer.runtime.emitter import RESULTS, Emitter, needed_after, result_name, source_nodes, split_point
from remat_explorer.runtime.generated_step import annotated_source, residents_of
from remat_explorer.runtime.gradient_handover import group_gradients, hand_over
from remat_explorer.runtime.oom_errors import live_values_before
from remat_explorer.runtime.output_guard import OutputReads

BackwardGenerator = Generator[None, None, Sequence[torch.Tensor]]


@dataclass(frozen=True, eq=False)
class ForwardBackward:
    """Generated code of both passes."""

    plan: AnyPlan
    program: Program
    device: torch.device
    split: int  # index of the first statement of the backward pass
    forward_module: GraphModule  # takes residents, and copies, if any; gives forward_results, then what is saved
    forward_results: tuple[Result, ...]
    backward_results: tuple[Result, ...]
    residents: tuple[Node, ...]  # of what is there before the plan
    backward_residents: tuple[Node, ...]  # tangents included
    saved: SavedForBackward  # what the forward pass leaves for the other one
    retains: bool = False  # the other one may run several times within the budget
    tier: Tier = field(default_factory=Tier)  # where what is sent goes
    _made: dict[tuple[frozenset[Node] | None, bool], BackwardPass] = field(default_factory=dict)
    _making: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(
        plan: AnyPlan, program: Program, device: torch.device, retains: bool = False, tier: Tier | None = None
    ) -> ForwardBackward:
        """Generate the code; ``retains`` if the backward pass may run several times."""
        split = split_point(plan)
        tangents = {entry.node for entry in program.inputs if entry.kind == "tangent"}
        residents = tuple(node for node in residents_of(program) if node not in tangents)
        forward = Emitter(plan, program, device)
        forward.emit_placeholders(residents)
        forward.emit_copies()
        forward.emit_statements(0, split)
        forward.emit_bodies(program.epilogue)
        forward_results = tuple(r for r in program.results if source_nodes(r) <= forward.nodes.keys())
        backward_results = tuple(r for r in program.results if r not in forward_results)
        needed = needed_after(plan, split, program.body, map(source_nodes, backward_results), program.carriers)
        backward_residents = tuple(node for node in residents_of(program) if node in needed)
        saved = SavedForBackward(tuple(n for n in needed if n not in {*residents, *tangents}), tuple(forward.states))
        forward.output(forward_results, [*(forward.nodes[node] for node in saved.nodes), *forward.states.values()])
        module = drop_source_with(GraphModule(nn.Module(), forward.graph))
        return ForwardBackward(
            plan,
            program,
            device,
            split,
            module,
            forward_results,
            backward_results,
            residents,
            backward_residents,
            saved,
            retains,
            tier or Tier(),
        )

    def forward(self, registers: Registers, copies: Copies | None = None) -> tuple[list[torch.Tensor], list[Any]]:
        """The results of ``forward_results``, and what the backward pass needs; ``registers`` keeps the residents.

        ``copies`` are for both passes of a plan that sends values.
        """
        given = () if copies is None else (copies,)
        outputs = self.forward_module.forward(*[registers[node] for node in self.residents], *given)
        count = len(self.forward_results)
        return list(outputs[:count]), list(outputs[count:])[::-1]

    @property
    def saved_bytes(self) -> int:
        """What the forward pass leaves in memory, outputs included, by the plan."""
        after = self.plan.timeline.after[self.split - 1] if self.split else self.plan.graph.resident_bytes
        return int(after) - self.plan.graph.resident_bytes

    @cached_property
    def scatters(self) -> bool:
        """Whether gradients are scattered among the processes that hold the model."""
        calls = (call for body in self.program.bodies for call in body.calls)
        return any(call.target is REDUCE_SCATTER for call in calls)

    @cached_property
    def reused_parameter(self) -> str:
        """The first parameter or input that one pass uses several times, so that it has a sum of gradients; or ""."""
        gradients = [result for result in self.program.results if result.kind == "gradient"]
        return next((result.name for result in gradients if result.node.meta.get("is_gradient_acc")), "")

    @cached_property
    def output_reads(self) -> OutputReads:
        """What the backward pass reads, for outputs that are written to."""
        return OutputReads(self.plan, self.program, self.split)

    @cached_property
    def handovers(self) -> tuple[tuple[Result, ...], ...]:
        """The gradients of the backward pass, grouped by when they are handed over."""
        return group_gradients(
            self.plan, self.program, self.split, [r for r in self.backward_results if r.kind == "gradient"]
        )

    @property
    def planned_backward(self) -> BackwardPass:
        """The backward pass for the gradients of all outputs, with the strides that they have in the captured graph."""
        return self.backward(None)

    def backward(self, missing: frozenset[Node] | None, retaining: bool = False) -> BackwardPass:
        """A backward pass; made once for each pair of arguments.

        ``missing`` are the tangents that did not come, where others came, in any strides; None where all came as in the
        captured graph. If ``retaining``, what the forward pass left is as before afterwards.
        """
        key = missing, retaining
        with self._making:
            if key not in self._made:
                made = Emitter(self.plan, self.program, self.device)
                if missing is not None:
                    made = BackwardEmitter(self.plan, self.program, self.device, missing)
                if retaining:
                    made.kept = set(live_values_before(self.plan, self.split))
                self._made[key] = BackwardPass.of(
                    made, self.split, self.backward_residents, self.saved, self.backward_results, self.handovers
                )
            return self._made[key]

    @property
    def source(self) -> str:
        """The Python source of both passes, with the plan's statements as comments."""
        modules = self.forward_module, self.planned_backward.module
        forward, backward = (annotated_source(module, self.plan) for module in modules)
        return f"{forward}\n\n{backward.replace('def forward(', 'def backward(', 1)}"


@dataclass(frozen=True, eq=False)
class SavedForBackward:
    """What the forward pass leaves in memory for the backward pass."""

    nodes: tuple[Node, ...]  # of the captured graph, whose tensors it leaves, in order
    states: tuple[int, ...]  # random operations that run again; their states come after the tensors


@dataclass(frozen=True, eq=False)
class BackwardPass:
    """A backward pass for gradients of some of the outputs.

    ``module`` takes the resident tensors in order, None for a gradient that did not come, a list of what the forward
    pass left, which it empties, a list for gradients, and the copies of a plan that sends values. It is a generator,
    which puts the gradients of one handover after another into that list, None for one that is None, and pauses after
    each; in the end it gives new contents of buffers.
    """

    module: GraphModule
    residents: tuple[Node, ...]  # the nodes of those tensors
    reads: frozenset[Node]  # which of them, and of what the forward pass left, it reads

    @staticmethod
    def of(
        emitter: Emitter,
        split: int,
        residents: Sequence[Node],
        saved: SavedForBackward,
        backward_results: Sequence[Result],
        handovers: Sequence[Sequence[Result]],
    ) -> BackwardPass:
        """The pass that an emitter with nothing in it writes; ``split`` is the index of the pass's first statement."""
        emitter.emit_placeholders(residents)
        sources = {node: emitter.nodes[node] for node in residents}
        left = emitter.graph.placeholder("saved")
        gradients = emitter.graph.placeholder("gradients")
        emitter.emit_copies(split)
        for node in saved.nodes:
            emitter.nodes[node] = sources[node] = emitter.graph.call_method("pop", (left,))
        for operation in saved.states:
            emitter.states[operation] = emitter.graph.call_method("pop", (left,))
        found: dict[Result, Node] = {}
        waiting = {result: source_nodes(result) for result in backward_results}
        for place in range(split, len(emitter.plan.statements)):
            emitter.emit_statements(place, place + 1)
            for result in [result for result, sources in waiting.items() if sources <= emitter.nodes.keys()]:
                found[result] = emitter.result(result)
                del waiting[result]
        end = emitter.end([(result, found[result]) for result in backward_results])
        given: dict[Result, Node | None] = dict(zip(backward_results, cast(tuple[Any, ...], end.args[0]), strict=True))
        buffers = [result for result in backward_results if result.kind == "buffer"]
        end.args = (tuple(given[result] for result in buffers),)
        end.meta[RESULTS] = ", ".join(map(result_name, buffers))
        own = dict(
            emitter.separate_gradients([(result, given[result]) for handover in handovers for result in handover])
        )
        owners = {result: sources.get(result.of.node) for result in own if result.of}
        leaving = [[(result, own[result]) for result in handover] for handover in handovers]
        hand_over(emitter.graph, gradients, leaving, owners)
        reads = frozenset(node for node, source in sources.items() if source.users)
        return BackwardPass(drop_source_with(GraphModule(nn.Module(), emitter.graph)), tuple(residents), reads)

    def run(
        self,
        residents: Mapping[Node, torch.Tensor | None],
        saved: list[Any],
        gradients: list[torch.Tensor | None],
        copies: Copies | None = None,
    ) -> BackwardGenerator:
        """The pass, ready to run up to its first pause; it empties ``saved``, and puts gradients into ``gradients``."""
        given = () if copies is None else (copies,)
        return self.module.forward(*[residents[node] for node in self.residents], saved, gradients, *given)
