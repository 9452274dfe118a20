"""Executes a plan: a register file, one statement after another, up to the outcome of a training step.

The forward pass, and the backward pass with what it recomputes, are one list of statements here: MONeT (Shah et al.,
ICLR 2021) has Algorithm 1 and Algorithm 2 for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from remat_explorer.capture import Program, Registers, Result, no_autocast
from remat_explorer.errors import ExecutionError
from remat_explorer.offload import Drop, Fetch, Send
from remat_explorer.plan import Compute, Free
from remat_explorer.runtime.copies import AnyPlan, Copies, Tier, open_copies, statement_text
from remat_explorer.runtime.oom_errors import explain_oom
from remat_explorer.runtime.random_state import RandomStates


@dataclass(frozen=True, eq=False)
class StepOutcome:
    """Results of a training step: the outputs (the loss alone, where there is one), gradients, new buffer contents.

    Attributes:
        outputs: in the order of the program's results.
        gradients: for each parameter that gets one, by its name in the model, and for each input as "input tensor 0".
        buffers: the buffers that the step writes, by name.
    """

    outputs: tuple[torch.Tensor, ...]
    gradients: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]

    @staticmethod
    def of(results: Sequence[Result], tensors: Sequence[torch.Tensor]) -> StepOutcome:
        """The tensors of a program's results, by what each one is."""
        by_kind: dict[str, dict[str, torch.Tensor]] = {"output": {}, "gradient": {}, "buffer": {}}
        for result, tensor in zip(results, tensors, strict=True):
            by_kind[result.kind][result.name] = tensor
        return StepOutcome(tuple(by_kind["output"].values()), by_kind["gradient"], by_kind["buffer"])

    def copied(self) -> StepOutcome:
        """The same in tensors of its own, on the CPU, which nothing that runs later changes."""

        def copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}

        outputs = tuple(output.detach().to("cpu", copy=True) for output in self.outputs)
        return StepOutcome(outputs, copies(self.gradients), copies(self.buffers))


Section = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True, eq=False)
class Interpreter:
    """Runs ``plan`` with the operations of ``program`` on ``device``; what it sends goes to ``tier``.

    Raises:
        OutOfMemoryError: from `run`, if memory runs out, with the statement and what was in memory.
        ExecutionError: from `run`, if it is cancelled, or a copy fails, with the statement.
    """

    plan: AnyPlan
    program: Program
    device: torch.device
    tier: Tier = field(default_factory=Tier)

    def run(
        self,
        registers: Registers,
        section: Section = contextlib.nullcontext,
        cancelled: Callable[[], bool] = lambda: False,
        copies: Copies | None = None,
    ) -> StepOutcome:
        """Execute every statement.

        Args:
            registers: what `Program.bind` gave; used up.
            section: a context entered around each statement, for meters.
            cancelled: asked before each statement, and while a copy is waited for.
            copies: of a plan with transfers; made here, and ended, unless given.
        """
        states, place = RandomStates(self.device), 0
        opened = open_copies(self.tier, self.plan, self.device, cancelled)
        given = contextlib.nullcontext(copies) if copies else opened
        with torch.no_grad(), no_autocast(), explain_oom(self.plan, registers.clear, lambda: place), given as copies:
            for place, statement in enumerate(self.plan.statements):
                if cancelled():
                    raise ExecutionError(f"execution was cancelled before {statement_text(self.plan, place)!r}")
                with section():
                    if isinstance(statement, Compute):
                        self._compute(statement, registers, states, copies)
                    else:
                        self._transfer(place, statement, registers, copies)
            return self._finish(registers)

    def _transfer(
        self, place: int, statement: Free | Send | Fetch | Drop, registers: Registers, copies: Copies | None
    ) -> None:
        value, node = statement.value, self.program.carriers[statement.value]
        if isinstance(statement, Free):
            if copies is not None:
                copies.free(value, registers[node])
            del registers[node]
            return
        assert copies is not None
        if isinstance(statement, Send):
            copies.send(place, value, registers[node])
        elif isinstance(statement, Fetch):
            registers[node] = copies.fetch(place, value)
        else:
            copies.drop(place, value)

    def _compute(self, statement: Compute, registers: Registers, states: RandomStates, copies: Copies | None) -> None:
        body = self.program.body(statement)
        if copies is not None:
            for value in self.plan.graph.inputs(statement.operation):
                copies.arrive(value)
            if statement.overwrites is not None:
                copies.settle(statement.overwrites)
        now = None
        if body.random and statement.first:
            states.save(statement.operation)
        elif body.random:
            now = states.get()
            states.restore(statement.operation)
        body.run(registers, statement.drops)
        if now is not None:
            states.set(now)

    def _finish(self, registers: Registers) -> StepOutcome:
        for body in self.program.epilogue:
            body.run(registers)
        results = self.program.results
        return StepOutcome.of(results, [result.views.result(registers, result.node) for result in results])
