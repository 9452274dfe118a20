"""A plan in two halves, as autograd wants it: forward up to the outputs, backward from their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from remat_explorer.capture.operations.program import Body, Program, Registers, Result
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.emission import Emission, reads
from remat_explorer.runtime.generated_step import RESULTS, annotated_source, name_of, residents_of


def cut_of(plan: Plan) -> int:
    """The index of the first statement that belongs to the backward half.

    The forward half ends with the last first run of an operation of the forward pass, and what is freed after it.
    Repetitions that follow serve the backward pass, so they wait for it, and so do optional operations.

    Raises:
        ExecutionError: if the plan begins the backward pass before the forward pass is complete.
    """
    operations = plan.graph.operations
    first_runs = [i for i, s in enumerate(plan.statements) if isinstance(s, Compute) and s.first]
    mandatory = [i for i in first_runs if not operations[plan.statements[i].operation].optional]  # type: ignore[union-attr]
    forward = [i for i in mandatory if operations[plan.statements[i].operation].phase == "forward"]  # type: ignore[union-attr]
    backward = [i for i in mandatory if i not in set(forward)]
    if forward and backward and forward[-1] > backward[0]:
        raise ExecutionError(
            f"the plan begins the backward pass with {plan.text(plan.statements[backward[0]])!r} before it has run "
            f"{plan.text(plan.statements[forward[-1]])!r}; such a plan can be measured, but not train a model"
        )
    cut = forward[-1] + 1 if forward else 0
    while cut < len(plan.statements) and not isinstance(plan.statements[cut], Compute):
        cut += 1
    return cut


@dataclass(frozen=True, eq=False)
class Halves:
    """Generated code of both halves.

    Attributes:
        plan, program: what the code was generated from.
        cut: index of the first statement of the backward half.
        forward_module: takes the resident tensors but the tangents; gives the results of ``early``, then what the
            backward half reads.
        backward_module: takes what ``later`` lists, then a list of what the forward half gave, which it empties; gives
            the results of ``late``.
        early, late: the program's results, by the half that computes them.
        residents, later: what each half takes.
    """

    plan: Plan
    program: Program
    cut: int
    forward_module: GraphModule
    backward_module: GraphModule
    early: tuple[Result, ...]
    late: tuple[Result, ...]
    residents: tuple[Node, ...]
    later: tuple[Node, ...]

    @staticmethod
    def of(plan: Plan, program: Program, device: torch.device) -> Halves:
        """Generate the code.

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
        early = tuple(r for r in program.results if _source_of(r) <= forward.nodes.keys())
        late = tuple(r for r in program.results if r not in early)

        backward = Emission(plan, program, device)
        needed = _needed(plan, program, cut, late)
        everything = {*residents, *tangents}
        later = tuple(node for node in residents_of(program) if node in needed)
        backward.take(later)
        saved = [node for node in needed if node not in everything]
        results = [forward.result(result) for result in early]
        states = list(forward.states.items())
        left = [*results, *(forward.nodes[node] for node in saved), *(state for _, state in states)]
        forward.graph.output(tuple(left)).meta[RESULTS] = ", ".join(map(name_of, early))

        box = backward.graph.placeholder("saved")
        for kept, keys in ((backward.nodes, saved), (backward.states, [k for k, _ in states])):
            for key in keys:
                kept[key] = backward.graph.call_method("pop", (box,))  # type: ignore[index]
        backward.statements(cut, len(plan.statements))
        output = backward.graph.output(tuple(backward.result(result) for result in late))
        output.meta[RESULTS] = ", ".join(map(name_of, late))
        first, second = (GraphModule(nn.Module(), emission.graph) for emission in (forward, backward))
        return Halves(plan, program, cut, first, second, early, late, residents, later)

    def forward(self, registers: Registers) -> tuple[list[torch.Tensor], list[Any]]:
        """The results of ``early``, and what `backward` needs; ``registers`` holds the residents and keeps them."""
        outputs = self.forward_module.forward(*[registers[node] for node in self.residents])
        count = len(self.early)
        return list(outputs[:count]), list(outputs[count:])[::-1]

    def backward(self, residents: Mapping[Node, torch.Tensor], saved: list[Any]) -> Sequence[torch.Tensor]:
        """The results of ``late``; ``saved`` is what `forward` gave, and is emptied."""
        return self.backward_module.forward(*[residents[node] for node in self.later], saved)

    @property
    def source(self) -> str:
        """The Python source of both halves, with the plan's statements as comments."""
        forward, backward = (annotated_source(m, self.plan) for m in (self.forward_module, self.backward_module))
        return f"{forward}\n\n{backward.replace('def forward(', 'def backward(', 1)}"


def _source_of(result: Result) -> set[Node]:
    """The nodes from which a result's views start."""
    return reads(result.views) or {result.node}


def _needed(plan: Plan, program: Program, cut: int, late: tuple[Result, ...]) -> list[Node]:
    """What the backward half reads without having made it, in order of first use."""
    made: set[Node] = set()
    needed: dict[Node, None] = {}

    def read(nodes: set[Node]) -> None:
        needed.update(dict.fromkeys(sorted(nodes - made, key=lambda node: node.name)))

    for statement in plan.statements[cut:]:
        if isinstance(statement, Compute):
            body: Body = program.body(statement)
            read(reads(body))
            made |= {node for value, node in body.outputs.items() if value not in statement.drops}
    for result in late:
        read(_source_of(result))
    return list(needed)
