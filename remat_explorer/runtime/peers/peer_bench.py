"""Runs contenders from the same state, one after another, and reads memory, time and results.

A `Contender` is one way to run a training step: plain autograd, changed or not, or a plan.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from remat_explorer.capture.operations.program import Program
from remat_explorer.capture.profiling.memory_meter import memory_meter
from remat_explorer.capture.step.placement import Placed
from remat_explorer.plan import Plan
from remat_explorer.runtime.comparison import Comparison, Difference, FinalState, compare
from remat_explorer.runtime.eager import Eager, InitialState, ModelChange, interleaved_seconds
from remat_explorer.runtime.generated_step import GeneratedStep, generate
from remat_explorer.runtime.interpreter import Interpreter, Section, StepOutcome

Run = Callable[[], StepOutcome]


class Contender(Protocol):
    """One training step in one way.

    Attributes:
        name, knob: as in `PeerMeasurement`.
        plan: where it is one.
    """

    @property
    def name(self) -> str: ...
    @property
    def knob(self) -> str | None: ...
    @property
    def plan(self) -> Plan | None: ...

    def prepare(self, section: Section = contextlib.nullcontext) -> AbstractContextManager[Run]:
        """A context that gives what runs the step; whatever is there before it starts is there once it is entered."""
        ...


@dataclass(frozen=True, eq=False)
class Autograd:
    """Plain autograd on a model that ``change`` makes run in another way; by itself it is eager PyTorch."""

    training: Eager
    name: str = "eager"
    knob: str | None = None
    change: ModelChange = contextlib.nullcontext
    plan: None = None

    @contextlib.contextmanager
    def prepare(self, section: Section = contextlib.nullcontext) -> Iterator[Run]:
        """Metered as one section, from before the forward pass until gradients are there."""
        with self.training.prepared(self.change) as once:

            def run() -> StepOutcome:
                with section():
                    return once()

            yield run


@dataclass(frozen=True, eq=False)
class PlannedPeer:
    """A plan on the graph of ``program``: metered by the interpreter, and timed as generated code."""

    name: str
    knob: str | None
    plan: Plan
    program: Program
    placed: Placed
    tensors: tuple[torch.Tensor, ...]
    cancelled: Callable[[], bool]

    def prepare(self, section: Section = contextlib.nullcontext) -> AbstractContextManager[Run]:
        """Metered statement by statement, as `remat_explorer.measure` does; resident tensors are bound before."""
        registers = self.program.bind(self.placed.model, self.tensors)
        if section is contextlib.nullcontext:
            return contextlib.nullcontext(lambda: self._generated.run(registers))
        interpreter = Interpreter(self.plan, self.program, self.placed.device)
        return contextlib.nullcontext(lambda: interpreter.run(registers, section, self.cancelled))

    @cached_property
    def _generated(self) -> GeneratedStep:
        return generate(self.plan, self.program, self.placed.device)


@dataclass(frozen=True, eq=False)
class MeteredRun:
    """One metered run: peak bytes with resident bytes, and what it leaves behind."""

    peak: int
    final: FinalState

    def copied(self) -> MeteredRun:
        """The same with results of its own, which no later run changes."""
        return MeteredRun(self.peak, FinalState(self.final.outcome.copied(), self.final.states))


class PeerBench:
    """One device, with the buffers and the random state from which every contender starts.

    Args:
        placed: the model on its device; its buffers are the ones to start from, and no contender writes to them.
        training: whose buffers and gradients are set back before each run.
        resident_bytes: bytes that are there before a step and count in every peak.
    """

    def __init__(self, placed: Placed, training: Eager, resident_bytes: int) -> None:
        self._placed, self._resident = placed, resident_bytes
        self._start = InitialState(training, placed.device)
        self._varying: tuple[Difference, ...] | None = None

    def run(self, contender: Contender) -> MeteredRun:
        """One metered run after one that warms up. Results are valid until the next run."""
        self._start.rewind()
        with contender.prepare() as run:
            run()  # warms up: kernels are chosen on their first call
        self._start.rewind()
        meter = memory_meter(self._placed.device)
        with contender.prepare(meter.section) as run, meter:
            outcome = run()
        peak = self._resident + max(reading.highest for reading in meter.readings)
        return MeteredRun(peak, FinalState(outcome, self._start.states()))

    def compare(self, ran: MeteredRun, reference: MeteredRun) -> Comparison:
        """How far results are from those of another run; a plan tells only the buffers that it writes."""
        return compare(ran.final, reference.final, dict(self._placed.model.named_buffers()))

    def varying(self, eager: Contender, reference: MeteredRun) -> tuple[Difference, ...]:
        """How far eager PyTorch is from itself when it runs again; it runs when this is asked for the first time."""
        if self._varying is None:
            self._varying = self.compare(self.run(eager), reference).differences
        return self._varying

    def seconds(
        self, contenders: Sequence[Contender], repeats: int, advance: Callable[[], None]
    ) -> dict[Contender, float]:
        """Median seconds of contenders that take turns."""
        taken = interleaved_seconds({one: one.prepare for one in contenders}, self._start, repeats, advance)
        return {one: statistics.median(seconds) for one, seconds in taken.items()}
