"""Executes a plan: a register file, one statement after another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.memory_meter import is_out_of_memory
from remat_explorer.capture.program import Program, Registers
from remat_explorer.errors import ExecutionError
from remat_explorer.plan import Compute, Plan, Statement
from remat_explorer.runtime.outcome import Outcome
from remat_explorer.runtime.random_state import RandomStates

Section = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True, eq=False)
class Interpreter:
    """Runs ``plan`` with the operations of ``program`` on ``device``.

    Raises:
        ExecutionError: from `run`, if memory runs out or the run is cancelled, with the statement's text.
    """

    plan: Plan
    program: Program
    device: torch.device

    def run(
        self,
        registers: Registers,
        section: Section = contextlib.nullcontext,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Execute every statement.

        Args:
            registers: what `Program.bind` gave; used up.
            section: a context entered around each statement, for meters.
            cancelled: asked before each statement.
        """
        states = RandomStates(self.device)
        statement: Statement
        with torch.no_grad(), no_autocast():
            for statement in self.plan.statements:
                if cancelled():
                    raise ExecutionError(f"execution was cancelled before {self.plan.text(statement)!r}")
                try:
                    self._execute(statement, registers, states, section)
                except RuntimeError as error:
                    if not is_out_of_memory(error):
                        raise
                    raise ExecutionError(
                        f"memory ran out at {self.plan.text(statement)!r} (stage {statement.stage}); solve with a "
                        "smaller budget, or take a smaller batch"
                    ) from error
            return self._finish(registers)

    def _execute(self, statement: Statement, registers: Registers, states: RandomStates, section: Section) -> None:
        """Run one statement; generator states are read and set outside of ``section``, which meters memory."""
        if not isinstance(statement, Compute):
            with section():
                del registers[self.program.carriers[statement.value]]
            return
        body = self.program.body(statement)
        now = None
        if body.random and statement.first:
            states.save(statement.operation)
        elif body.random:
            now = states.get()
            states.restore(statement.operation)
        with section():
            body.run(registers, statement.drops)
        if now is not None:
            states.set(now)

    def _finish(self, registers: Registers) -> Outcome:
        for body in self.program.epilogue:
            body.run(registers)
        found: dict[str, dict[str, torch.Tensor]] = {"output": {}, "gradient": {}, "buffer": {}}
        for result in self.program.results:
            found[result.kind][result.name] = result.views.result(registers, result.node)
        return Outcome(tuple(found["output"].values()), found["gradient"], found["buffer"])
