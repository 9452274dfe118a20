"""The ways to run one training step that are compared: plain autograd, changed or not, and plans."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch

from remat_explorer.capture.captured_program import Program
from remat_explorer.capture.model_placement import Placement
from remat_explorer.plan import Plan
from remat_explorer.runtime.eager import Change, Eager
from remat_explorer.runtime.generated_step import GeneratedStep, generate
from remat_explorer.runtime.interpreter import Interpreter, Section
from remat_explorer.runtime.outcome import StepOutcome

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
    change: Change = contextlib.nullcontext
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
    placed: Placement
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
