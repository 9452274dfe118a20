"""One schedule by every road that executes it, beside plain PyTorch."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from remat_explorer.capture import trace
from remat_explorer.capture.inputs_and_outputs import Loss, map_tensors
from remat_explorer.capture.model_placement import exact_kernels, place
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.plan import Plan
from remat_explorer.runtime.comparison import Comparison, FinalState, compare
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter, StepOutcome
from remat_explorer.runtime.random_state import generator_state
from remat_explorer.runtime.training_run import train
from remat_explorer.schedule import Schedule
from tests.runtime.random_schedules import random_schedule

CPU = torch.device("cpu")
SEED = 7


class Exactness:
    """A model whose schedules are compared with plain PyTorch, with ``outside`` also as part of a larger loss."""

    def __init__(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        loss: Loss | None = None,
        outside: Callable[[Any], torch.Tensor] | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.outside, self.device = outside, device
        self.model, self.args, self.kwargs, self.loss = model, args, kwargs, loss
        self.program = trace(model, args, kwargs, loss)
        self.graph = self.program.graph
        step = TrainingStep(model, args, kwargs, loss)
        self.tensors = step.tensors(args, kwargs)
        self.leaves = step.leaves(self.tensors)  # the inputs, where gradients come to those that require one
        self.initial = {name: buffer.clone() for name, buffer in model.named_buffers()}

    @cached_property
    def reference(self) -> FinalState:
        eager = Eager(place(self.model, self.args, self.kwargs, str(self.device)), self.loss)
        return self._from_seed(lambda: eager.run().copied())

    @cached_property
    def reference_outside(self) -> FinalState:
        remaining = iter(self.leaves)
        args, kwargs = map_tensors(lambda _: next(remaining), (tuple(self.args), dict(self.kwargs or {})))
        return self._from_seed(lambda: self._differentiated(self.model(*args, **kwargs)))

    def schedule(self, seed: int, dropped: float, flipped: float) -> Schedule:
        """A random valid schedule; gradients are computed again in it, too."""
        return random_schedule(self.graph, seed, dropped, flipped)

    def compare(self, schedule: Schedule) -> dict[str, Comparison]:
        """The interpreter, generated code and a training step, each compared with plain PyTorch."""
        plan = Plan.of(schedule)
        interpreter, generated = Interpreter(plan, self.program, self.device), generate(plan, self.program, self.device)
        halves = ForwardBackward.of(plan, self.program, self.device)
        run = partial(train, halves, self.model, self.tensors, self.leaves)
        roads: dict[str, Callable[[], StepOutcome]] = {
            "interpreter": lambda: interpreter.run(self.program.bind(self.model, self.tensors)),
            "generated code": lambda: generated.run(self.program.bind(self.model, self.tensors)),
            "training step": lambda: self._trained(run()),
        }
        if self.outside is not None:
            returned = self.program.returned
            roads["loss outside"] = lambda: self._differentiated(returned.filled(run()))
        references = {"loss outside": self.reference_outside} if self.outside is not None else {}
        return {
            name: compare(self._from_seed(road), references.get(name, self.reference), self.initial)
            for name, road in roads.items()
        }

    def _from_seed(self, run: Callable[[], StepOutcome]) -> FinalState:
        with torch.random.fork_rng([self.device] if self.device != CPU else []), exact_kernels():
            torch.manual_seed(SEED)
            outcome = run()
            return FinalState(outcome, [generator_state(device) for device in dict.fromkeys((CPU, self.device))])

    def _trained(self, outputs: Sequence[torch.Tensor]) -> StepOutcome:
        starts = [output for output in outputs if output.requires_grad]
        torch.autograd.backward(starts, [torch.ones_like(output) for output in starts])
        return self._left(outputs)

    def _differentiated(self, returned: Any) -> StepOutcome:
        assert self.outside is not None
        loss = self.outside(returned)
        loss.backward()
        return self._left([loss])

    def _left(self, outputs: Sequence[torch.Tensor]) -> StepOutcome:
        """Outputs, gradients and buffers after a step; the model is put back to where it was."""
        differentiated = {
            **dict(self.model.named_parameters()),
            **{f"input tensor {place}": leaf for place, leaf in enumerate(self.leaves)},
        }
        gradients = {name: tensor.grad for name, tensor in differentiated.items() if tensor.grad is not None}
        buffers = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        for tensor in differentiated.values():
            tensor.grad = None
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self.initial[name])
        return StepOutcome(tuple(output.detach() for output in outputs), gradients, buffers)
