"""A plan as plain Python: one call after another, each tensor freed by ``x = None`` after its last use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.fx import GraphModule, Node

from remat_explorer.capture import Program, Registers, drop_source_with, no_autocast
from remat_explorer.documents import write_text
from remat_explorer.plain_text import one_line
from remat_explorer.quantities import format_bytes
from remat_explorer.runtime.copies import AnyPlan, Tier, open_copies, statement_text
from remat_explorer.runtime.emitter import RESULTS, STATEMENT, Emitter, statement_of_line
from remat_explorer.runtime.interpreter import StepOutcome
from remat_explorer.runtime.oom_errors import explain_oom


@dataclass(frozen=True, eq=False)
class GeneratedStep:
    """A training step as a static `torch.fx.GraphModule`."""

    module: GraphModule  # takes residents in order, and copies, if any; gives the results of the program in order
    plan: AnyPlan
    program: Program
    residents: tuple[Node, ...]  # parameters, buffers, inputs, tangents and constants, in the captured graph
    device: torch.device
    tier: Tier = field(default_factory=Tier)

    def run(self, registers: Registers, cancelled: Callable[[], bool] = lambda: False) -> StepOutcome:
        """Execute the step, as `Interpreter.run` does, with the same results and peak; ``registers`` are used up.

        ``cancelled`` is asked while a copy is waited for.
        """
        opened = open_copies(self.tier, self.plan, self.device, cancelled)
        with torch.no_grad(), no_autocast(), explain_oom(self.plan, registers.clear), opened as copies:
            tensors = [registers.pop(node) for node in self.residents]
            given = () if copies is None else (copies,)
            return StepOutcome.of(self.program.results, self.module.forward(*tensors, *given))

    @property
    def source(self) -> str:
        """The Python source, with the plan's statements as comments."""
        return annotated_source(self.module, self.plan)

    def save(self, path: str | Path) -> Path:
        """Write the source to a file, atomically; it is for reading, and runs as ``forward`` of a module."""
        return write_text(path, self.source)


def generate(plan: AnyPlan, program: Program, device: torch.device, tier: Tier | None = None) -> GeneratedStep:
    """Generate the Python of a plan; random operations draw from the generator of ``device``."""
    emitter = Emitter(plan, program, device)
    residents = residents_of(program)
    emitter.emit_placeholders(residents)
    emitter.emit_copies()
    emitter.emit_statements(0, len(plan.statements))
    emitter.emit_bodies(program.epilogue)
    emitter.output(program.results)
    module = drop_source_with(GraphModule(nn.Module(), emitter.graph))
    return GeneratedStep(module, plan, program, residents, device, tier or Tier())


def residents_of(program: Program) -> tuple[Node, ...]:
    """The nodes that `Program.bind` fills: inputs of every kind, then the constants made once."""
    made = [node for body in program.prologue for node in body.outputs.values()]
    return (*(entry.node for entry in program.inputs), *made)


def annotated_source(module: GraphModule, plan: AnyPlan) -> str:
    """The source of generated code, with each statement of ``plan`` and its predicted memory above its calls."""
    statements = {node.name: node.meta.get(STATEMENT) for node in module.graph.nodes}
    results = {node.name: node.meta[RESULTS] for node in module.graph.nodes if node.meta.get(RESULTS)}
    end = next(iter(reversed(module.graph.nodes))).name
    lines: list[str] = []
    shown: int | None = None
    for line in module.code.strip().splitlines():
        if line.startswith("def "):
            line = line.replace("(", "(\n    ").replace(", ", ",\n    ").replace("):", ",\n):")
        name = end if line.startswith("    return ") else line.strip().partition(" = ")[0]
        if name in results:
            lines.append(f"    # results: {one_line(results[name])}")
        statement = statement_of_line(line, statements)
        if statement is not None and statement != shown:
            shown, peak = statement, int(plan.timeline.during[statement])
            entry = plan.statements[statement]
            lines.append(f"    # stage {entry.stage}: {statement_text(plan, statement)} ({format_bytes(peak)})")
        lines.append(line)
    return "\n".join(lines) + "\n"
