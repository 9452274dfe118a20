"""One run of a plan in which each computation is timed, or metered."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from remat_explorer.capture.operations.program import Program, Registers
from remat_explorer.capture.out_of_memory import is_out_of_memory
from remat_explorer.capture.profiling.memory_meter import memory_meter
from remat_explorer.capture.stopwatch import seconds_of
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
        """Seconds of each computation; the device is waited for before and after it."""
        seconds: list[float] = []

        def compute(statement: Compute) -> None:
            body = self.program.body(statement)
            seconds.append(seconds_of(lambda: body.run(registers, statement.drops), self.device))

        self._run(registers, compute)
        return seconds

    def metered(self, registers: Registers) -> list[int]:
        """Workspace of each computation: its highest memory less what was there before and what it makes beyond that.

        An output that takes over the storage of an input is nothing beyond.
        """
        with memory_meter(self.device) as meter:

            def compute(statement: Compute) -> None:
                with meter.section():
                    self.program.body(statement).run(registers, statement.drops)

            self._run(registers, compute)
        graph = self.plan.graph
        sizes, computed = graph.value_bytes, [s for s in self.plan.statements if isinstance(s, Compute)]
        taken = [0 if s.overwrites is None else int(sizes[s.overwrites]) for s in computed]
        made = [int(sizes[list(graph.outputs(s.operation))].sum()) for s in computed]
        rows = zip(meter.readings, made, taken, strict=True)
        return [max(0, reading.highest - reading.before - (size - over)) for reading, size, over in rows]

    def _run(self, registers: Registers, compute: Callable[[Compute], None]) -> None:
        for statement in self.plan.statements:
            if not isinstance(statement, Compute):
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
