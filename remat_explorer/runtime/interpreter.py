"""Executes a plan: a register file, one statement after another.

The forward pass, and the backward pass with what it recomputes, are one list of statements here: MONeT (Shah et al.,
ICLR 2021) has Algorithm 1 and Algorithm 2 for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.captured_program import Program, Registers
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute, Plan, Statement
from remat_explorer.runtime.outcome import StepOutcome
from remat_explorer.runtime.random_state import RandomStates
from remat_explorer.runtime.shortage import explained_shortage

Section = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True, eq=False)
class Interpreter:
    """Runs ``plan`` with the operations of ``program`` on ``device``.

    Raises:
        OutOfMemoryError: from `run`, if memory runs out, with the statement and what was in memory.
        ExecutionError: from `run`, if it is cancelled, with the statement.
    """

    plan: Plan
    program: Program
    device: torch.device

    def run(
        self,
        registers: Registers,
        section: Section = contextlib.nullcontext,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> StepOutcome:
        """Execute every statement.

        Args:
            registers: what `Program.bind` gave; used up.
            section: a context entered around each statement, for meters.
            cancelled: asked before each statement.
        """
        states, place = RandomStates(self.device), 0
        with torch.no_grad(), no_autocast(), explained_shortage(self.plan, registers.clear, lambda: place):
            for place, statement in enumerate(self.plan.statements):  # noqa: B007 (read where memory runs out)
                if cancelled():
                    raise ExecutionError(f"execution was cancelled before {self.plan.text(statement)!r}")
                self._execute(statement, registers, states, section)
            return self._finish(registers)

    def _execute(self, statement: Statement, registers: Registers, states: RandomStates, section: Section) -> None:
        """Run one statement; generator states are read and set within ``section``: they take memory for a moment."""
        if not isinstance(statement, Compute):
            with section():
                del registers[self.program.carriers[statement.value]]
            return
        body = self.program.body(statement)
        with section():
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
