"""Measured costs and workspace of every implementation of operations that have several, on real tensors."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from remat_explorer.capture.model_placement import is_out_of_memory
from remat_explorer.capture.operations.program import Body, Program, Registers
from remat_explorer.capture.profiling.memory_meter import memory_meter
from remat_explorer.capture.profiling.storage_census import Choice, StorageCensus, beside
from remat_explorer.capture.stopwatch import Laps, laps_on
from remat_explorer.errors import OutOfMemoryError

Measure = Callable[[int, int, Registers], None]


@dataclass(frozen=True, eq=False)
class ChoicesRun:
    """Runs every operation once, in order, and of each that offers a choice all implementations, one after another.

    A value stays as long as any implementation of a later operation reads it; that takes more memory than any plan.

    Attributes:
        program: with alternatives.
        device: where it runs.
        step: called with the number of an operation for each implementation that has run.

    Raises:
        OutOfMemoryError: from `measured`, with the implementation; registers are emptied.
    """

    program: Program
    device: torch.device
    step: Callable[[int], None]

    @property
    def choices(self) -> list[Choice]:
        """Operation and number of each implementation that is measured here."""
        operations = enumerate(self.program.graph.operations)
        several = [(k, node) for k, node in operations if len(node.implementations) > 1 or node.optional]
        return [(k, code) for k, node in several for code in range(1, len(node.implementations) + 1)]

    def runs(self, repeats: int) -> int:
        """How many implementations run in all."""
        return len(self.choices) * (repeats + 2)

    def measured(self, bind: Callable[[], Registers], repeats: int, census: StorageCensus) -> dict[Choice, float]:
        """Seconds, the least of some timed runs, by operation and number of the implementation.

        Args:
            bind: gives registers that hold the resident tensors.
            repeats: timed runs, after one that warms up and before one that meters memory.
            census: sees what every implementation makes and needs.
        """
        seconds: dict[Choice, list[float]] = {choice: [] for choice in self.choices}

        def timed(laps: Laps, k: int, code: int, registers: Registers) -> None:
            body = census.forms((k, code))[0]
            scratch = dict(registers)
            with laps.lap():
                body.run(scratch)
            self._keep(body, scratch, registers)

        for _ in range(repeats + 1):
            laps = laps_on(self.device)
            self._walk(bind(), partial(timed, laps))
            for choice, elapsed in zip(self.choices, laps.seconds(), strict=True):
                seconds[choice].append(elapsed)
        with memory_meter(self.device) as meter:

            def metered(k: int, code: int, registers: Registers) -> None:
                for body in census.forms((k, code)):
                    scratch = beside(body, registers)
                    census.run((k, code), body, scratch, meter.section)
                    self._keep(body, scratch, registers)

            self._walk(bind(), metered)
        census.read(meter.readings)
        return {choice: min(times[1:]) for choice, times in seconds.items()}

    def _walk(self, registers: Registers, measure: Measure) -> None:
        graph, several = self.program.graph, set(self.choices)
        last_reader = [max(readers, default=-1) for readers in graph.readers]
        held: set[int] = set()
        for k, node in enumerate(graph.operations):
            if (k, 1) not in several:
                self.program.bodies[k].run(registers)
            for code in range(1, len(node.implementations) + 1) if (k, 1) in several else ():
                try:
                    measure(k, code, registers)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    traceback.clear_frames(error.__traceback__)  # locals there hold tensors
                    registers.clear()
                    way = node.implementations[code - 1].name
                    raise OutOfMemoryError(
                        f"memory ran out while profiling {node.name!r}, {way}: measuring every implementation takes "
                        "more memory than plain training; use a smaller batch, fewer kinds, or the predicted costs"
                    ) from None
                self.step(k)
            held |= {v for way in node.implementations for v in way.outputs}
            for v in [v for v in held if last_reader[v] <= k and not graph.persistent[v]]:
                registers.pop(self.program.carriers[v], None)
                held.discard(v)

    def _keep(self, body: Body, scratch: Registers, registers: Registers) -> None:
        """Keep the outputs that no implementation before this one has made."""
        for node in body.outputs.values():
            registers.setdefault(node, scratch[node])
