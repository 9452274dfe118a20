"""One run of a plan in which each computation is timed, or metered."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from remat_explorer.capture.model_placement import is_out_of_memory
from remat_explorer.capture.operations.program import Program, Registers
from remat_explorer.capture.profiling.memory_meter import memory_meter
from remat_explorer.capture.profiling.storage_census import StorageCensus, beside
from remat_explorer.capture.stopwatch import laps_on
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.plan import Compute, Plan


@dataclass(frozen=True, eq=False)
class ProfilingRun:
    """Runs ``plan`` with the operations of ``program``; results and random numbers do not matter.

    Attributes:
        step: called with the number of each operation that has run.

    Raises:
        OutOfMemoryError: from `timed` and `metered`, with the statement; registers are emptied.
    """

    plan: Plan
    program: Program
    device: torch.device
    step: Callable[[int], None]

    def timed(self, registers: Registers) -> list[float]:
        """Seconds of each computation, on CUDA those of its kernels."""
        laps = laps_on(self.device)

        def compute(statement: Compute) -> None:
            body = self.program.body(statement)
            with laps.lap():
                body.run(registers, statement.drops)

        self._run(registers, compute)
        return laps.seconds()

    def metered(self, registers: Registers, census: StorageCensus) -> None:
        """Let ``census`` see every computation and what it makes, and read the meter.

        An operation that may overwrite an operand also runs in its other form, at its first computation.
        """
        with memory_meter(self.device) as meter:

            def compute(statement: Compute) -> None:
                choice, body = (statement.operation, 1), self.program.body(statement)
                for form in census.forms(choice) if statement.first else ():
                    if form is not body:
                        census.run(choice, form, beside(form, registers), meter.section)
                census.run(choice, body, registers, meter.section, statement.drops)

            self._run(registers, compute, lambda value: census.free(value, registers, meter.section))
            census.require_views(registers)
        census.read(meter.readings)

    def _run(
        self, registers: Registers, compute: Callable[[Compute], None], free: Callable[[int], None] | None = None
    ) -> None:
        for statement in self.plan.statements:
            if not isinstance(statement, Compute):
                if free is not None:
                    free(statement.value)
                else:
                    del registers[self.program.carriers[statement.value]]
                continue
            try:
                compute(statement)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                traceback.clear_frames(error.__traceback__)  # locals there hold tensors
                break
            self.step(statement.operation)
        else:
            return
        registers.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfMemoryError(
            f"memory ran out while profiling {self.plan.text(statement)!r}; use a smaller batch, or the predicted costs"
        )
