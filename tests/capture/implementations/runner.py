"""Nets of `nets` run by plans that choose implementations, and the memory that those take."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import nn

from remat_explorer.capture import trace
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.capture.model_placement import exact_kernels, place
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.capture_options import CaptureOptions, kinds_of
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.comparison import FinalState
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter, StepOutcome
from remat_explorer.runtime.random_state import generator_state
from remat_explorer.runtime.training_run import train
from tests.capture.implementations.nets import NETS, TOGETHER, plan_by, preferring
from tests.runtime.exactness import CPU, SEED

Net = tuple[nn.Module, tuple[torch.Tensor, ...]]
ROADS = ["interpreted", "generated", "trained"]


class Runner:
    """A net captured with alternatives, one of `NETS` or what a function makes, and what plain PyTorch makes of it."""

    def __init__(self, net: str | Callable[[], Net], kinds: str | list[str]) -> None:
        self.model, self.args = (NETS[net] if isinstance(net, str) else net)()
        self.program = trace(self.model, self.args, options=CaptureOptions(implementations=kinds_of(kinds)))
        self.graph = self.program.graph
        self.tensors = TrainingStep(self.model, self.args).tensors(self.args, {})
        self.initial = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        eager = Eager(place(self.model, self.args, {}, "cpu"), None)
        torch.manual_seed(SEED)
        with exact_kernels():
            outcome = eager.run()
        self.reference = FinalState(outcome.copied(), [generator_state(CPU)])

    def by(self, plan: Plan, road: str) -> FinalState:
        """What a plan leaves behind, executed in one of three ways."""
        torch.manual_seed(SEED)
        with exact_kernels():
            if road == "interpreted":
                outcome = Interpreter(plan, self.program, CPU).run(self.program.bind(self.model, self.tensors))
            elif road == "generated":
                outcome = generate(plan, self.program, CPU).run(self.program.bind(self.model, self.tensors))
            else:
                (loss,) = train(ForwardBackward.of(plan, self.program, CPU), self.model, self.tensors)
                self.model.zero_grad()
                loss.backward()
                gradients = {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}
                outcome = StepOutcome((loss.detach(),), gradients, dict(self.model.named_buffers()))
            found = FinalState(outcome.copied(), [generator_state(CPU)])
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self.initial[name])
        return found

    def plans(self, count: int = 4) -> list[Plan]:
        """The default plan, the last implementation of everything, and random choices."""
        draws = [random.Random(seed) for seed in range(count)]
        choices = [lambda k, n: 1, lambda k, n: n, lambda k, n: min(n, 2)]
        choices += [lambda k, n, draw=draw: draw.randint(1, n) for draw in draws]
        names = {way.name for node in self.graph.operations for way in node.implementations}
        choices += [preferring(self.graph, *group) for group in (*TOGETHER, *((name,) for name in sorted(names)))]
        return [plan_by(self.graph, choose) for choose in choices]


def used(plan: Plan) -> set[str]:
    """Names of the implementations other than the default that a plan runs."""
    computed = [s for s in plan.statements if isinstance(s, Compute)]
    ways = [(plan.graph.operations[s.operation], s.implementation - 1) for s in computed]
    return {node.implementations[i].name for node, i in ways if i} | {n.name.split()[-1] for n, _ in ways if n.optional}


def measured(plan: Plan, program, model, args) -> int:
    """Peak of the generated code of a plan, resident bytes included."""
    tensors = TrainingStep(model, args).tensors(args, {})
    step = generate(plan, program, CPU)
    registers = program.bind(model, tensors)
    with exact_kernels(), CpuMeter() as meter, meter.section():
        result = step.run(registers)
    del result
    return meter.readings[0].highest - meter.readings[0].before + plan.graph.resident_bytes
