"""Plain autograd, the reference for results, time and memory.

Every run of a comparison starts from one `InitialState`; `interleaved_seconds` is the one loop that takes times.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from remat_explorer.capture import (
    Loss,
    Placement,
    TrainingStep,
    first_line,
    is_out_of_memory,
    no_autocast,
    seconds_of,
    shard_groups,
    substitute_tensors,
    unwrap,
)
from remat_explorer.errors import ExecutionError, OutOfMemoryError
from remat_explorer.runtime.interpreter import Section, StepOutcome
from remat_explorer.runtime.random_state import RandomStates

ModelChange = Callable[[], contextlib.AbstractContextManager[Any]]


class Eager:
    """A model and its loss that plain autograd can train; the person's own tensors stay as they are.

    Parameters have the person's content and gradients of their own, buffers are copies. The model itself is not copied:
    it may hold what no copy can be made of. The lent tensors stay with it until the backward pass is over, since
    checkpoints run parts of the model again in it. What `torch.compile` wraps runs without it, and autocast goes
    without its cache of cast weights. An ExecutionError if the model is sharded.
    """

    def __init__(self, placed: Placement, loss: Loss | None) -> None:
        if shard_groups(placed.model):
            raise ExecutionError(
                "the model is sharded (fully_shard), and what this process holds does not run by itself: measure the "
                "model before it is sharded, and train what rematerialize makes of it afterwards"
            )
        self._step = TrainingStep(placed.model, placed.args, placed.kwargs, loss)
        self.tensors = self._step.tensors(placed.args, placed.kwargs)
        own = self._held()
        self._initial = {name: buffer.clone() for name, buffer in self._step.named_buffers()}
        self._step.hold(lambda tensor: tensor.detach() if isinstance(tensor, nn.Parameter) else tensor.clone())
        self._lent = {id(own[name]): tensor for name, tensor in self._held().items()}
        self._tangents: list[torch.Tensor] | None = None
        self.reset()

    def reset(self) -> None:
        """Buffers as at the start, no gradients."""
        for parameter in self._step.parameters():
            parameter.grad = None
        for name, content in self._initial.items():
            self._step.get_buffer(name).copy_(content)

    def run(
        self, change: ModelChange = contextlib.nullcontext, section: Section = contextlib.nullcontext
    ) -> StepOutcome:
        """One forward and backward pass, from the loss, or from ones for the outputs where there is none.

        ``change`` is entered on the model until gradients are there, ``section`` around all of it, for meters. The
        outcome is the tensors themselves: `reset` writes to the buffers, and takes the gradients.
        """
        with section(), self.prepared(change) as run:
            return run()

    @contextlib.contextmanager
    def prepared(self, change: ModelChange = contextlib.nullcontext) -> Iterator[Callable[[], StepOutcome]]:
        """A context that gives what `run` runs: the step alone, for a clock that shall see nothing else."""
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            no_autocast(),
            torch.compiler.set_stance("force_eager"),
            substitute_tensors(self._step.model, self._lent),
            change(),
        ):
            yield self._once

    def _once(self) -> StepOutcome:
        tensors = self._step.leaves(self.tensors)
        outputs = self._step.results_of(unwrap(self._step.model), tensors)
        starts = [output for output in outputs if output.requires_grad]
        if self._tangents is None:  # kept from run to run: a plan has them among what is resident
            self._tangents = [torch.ones_like(output) for output in starts]
        leaves = {f"input tensor {place}": tensors[place] for place in sorted(self._step.differentiated)}
        trained = [parameter for parameter in self._step.parameters() if parameter.requires_grad]
        torch.autograd.backward(starts, self._tangents, inputs=[*trained, *leaves.values()])
        names = self._step.names
        gradients = {names[name]: p.grad for name, p in self._step.named_parameters() if p.grad is not None}
        gradients |= {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}
        buffers = {names[name]: buffer for name, buffer in self._step.named_buffers()}
        return StepOutcome(tuple(output.detach() for output in outputs), gradients, buffers)

    def explained_run(self) -> StepOutcome:
        """The same; an OutOfMemoryError or ExecutionError where memory is short or the model does not run."""
        with self.explained():
            return self.run()

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """A context in which a run raises the errors of `explained_run`."""
        try:
            yield
            return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise ExecutionError(
                    f"{type(self._step.model).__name__} does not run in plain PyTorch, the reference here: "
                    f"{first_line(error)}; make the model run by itself first"
                ) from error
            traceback.clear_frames(error.__traceback__)  # locals there hold tensors
        self.reset()
        raise OutOfMemoryError("memory ran out in plain PyTorch, which keeps everything; take a smaller batch")

    def _held(self) -> dict[str, torch.Tensor]:
        return {**dict(self._step.named_parameters()), **dict(self._step.named_buffers())}


class InitialState:
    """Remembers the random state of the CPU and of a device, and whose buffers and gradients to set back."""

    def __init__(self, eager: Eager, device: torch.device) -> None:
        self._eager, self.device = eager, device
        self._generators = [RandomStates(home) for home in dict.fromkeys((torch.device("cpu"), device))]
        self._start = self.states()

    def states(self) -> list[np.ndarray]:
        """Random states now, of the CPU and of the device."""
        return [generator.get() for generator in self._generators]

    def rewind(self) -> None:
        """Go back to the beginning."""
        self._eager.reset()
        for generator, state in zip(self._generators, self._start, strict=True):
            generator.set(state)


Name = TypeVar("Name")


def interleaved_seconds(
    contenders: Mapping[Name, Callable[[], AbstractContextManager[Callable[[], object]]]],
    start: InitialState,
    repeats: int,
    advance: Callable[[], None],
) -> dict[Name, tuple[float, ...]]:
    """Seconds of each contender's runs, which take turns, every other time in the opposite order.

    So neither a drift of the machine nor what ran before favours one of them. A contender prepares a run, as a context
    that gives what runs it; only that is timed, until the device is done. Every run starts from ``start``, and
    ``advance`` is called after it.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats):
        for name, prepare in list(contenders.items())[:: -1 if turn % 2 else 1]:
            start.rewind()
            with prepare() as run:
                seconds[name].append(seconds_of(run, start.device))
            del run  # what it was prepared with would take room from the next one
            advance()
    return {name: tuple(times) for name, times in seconds.items()}
