"""Small nets with every pattern that has alternatives, schedules of them, and runs by plans that choose."""

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.memory_meter import CpuMeter
from remat_explorer.capture.model_placement import exact_kernels, place
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.capture_options import CaptureOptions, kinds_of
from remat_explorer.graph import Graph, Operation
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.comparison import FinalState
from remat_explorer.runtime.eager import Eager
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.generated_step import generate
from remat_explorer.runtime.interpreter import Interpreter, StepOutcome
from remat_explorer.runtime.random_state import generator_state
from remat_explorer.runtime.training_run import train
from remat_explorer.solvers.solution import Solution
from tests.runtime.exactness import CPU, SEED
from tests.runtime.kinds_of_models import Made

Net = tuple[nn.Module, tuple[torch.Tensor, ...]]
ROADS = ["interpreted", "generated", "trained"]
TOGETHER = (  # what one writes and another reads
    ("with places", "from places"),
    ("maxima alone", "from the input", "from places apart"),
    ("with state", "drawn again"),
    ("log sum exp alone", "from log sum exp", "left out"),
)


class Classifier(nn.Module):
    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.body(x), y)


class Block(nn.Module):
    def __init__(self, source: int, target: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(source, target, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(target, target, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(target) for _ in range(3))
        self.beside = nn.Conv2d(source, target, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + self.norms[2](self.beside(x))).relu()


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.mix, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.norm(x + self.out(found.transpose(1, 2).reshape(batch, length, width)))


def labelled(model: nn.Module, *shape: int) -> Net:
    return model, (torch.randn(shape), torch.randint(0, 10, shape[:1]))


def sides(source: int, target: int) -> nn.Module:
    """Two convolutions of the same tensor, added: their weight gradients are one operation."""
    convolutions = nn.ModuleList(nn.Conv2d(source, target, size, padding=size // 2) for size in (3, 1))
    return Made(lambda s, x: s.sides[0](x) + s.sides[1](x), sides=convolutions)


def pooled(size: int = 24, batch: int = 9) -> Net:
    torch.manual_seed(0)
    model = Classifier(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU6(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 16, 3, padding=1, groups=4),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return labelled(model, batch, 3, size, size)


def residual(size: int = 24, batch: int = 9) -> Net:
    torch.manual_seed(0)
    model = Classifier(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        Block(8, 8, 1),
        Block(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    return labelled(model, batch, 3, size, size)


def attentive(length: int = 12, batch: int = 3) -> Net:
    torch.manual_seed(0)
    model = Classifier(
        Attention(16, 2), nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.1), Attention(16, 2), nn.Flatten(),
        nn.Linear(16 * length, 10),
    )  # fmt: skip
    return labelled(model, batch, length, 16)


def parallel(size: int = 16, batch: int = 9) -> Net:
    torch.manual_seed(0)
    model = Classifier(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), sides(6, 8), nn.ReLU(), sides(8, 4), nn.Flatten(),
        nn.Linear(4 * size**2, 10),
    )  # fmt: skip
    return labelled(model, batch, 3, size, size)


NETS = {"pooled": pooled, "residual": residual, "attentive": attentive}


def preferring(graph: Graph, *names: str) -> Callable[[int, int], int]:
    """The choice of the implementation with one of these names, wherever there is one."""

    def choose(k: int, count: int) -> int:
        ways = [way.name for way in graph.operations[k].implementations]
        return next((ways.index(name) + 1 for name in names if name in ways), 1)

    return choose


def plan_by(graph: Graph, choose: Callable[[int, int], int]) -> Plan:
    """The plan that runs each operation once, by the implementation that ``choose`` takes of so many, counted from 1.

    An optional operation runs in its place if something reads what it writes; where the choice lacks a value that
    another operation's choice reads, it falls back on the default implementations.
    """
    codes = {k: choose(k, len(node.implementations)) for k, node in enumerate(graph.operations)}
    for k, node in enumerate(graph.operations):
        if any(graph.producer[v] == k for v in node.implementations[codes[k] - 1].inputs):
            codes[k] = 1  # reads what an earlier run of itself saved
    while True:
        read = {v for k in codes for v in graph.inputs(k, codes[k])}
        running = [k for k in codes if not graph.operations[k].optional or read & set(graph.outputs(k, codes[k]))]
        written = {v for k in running for v in graph.outputs(k, codes[k])}
        wanted = {v for k in running for v in graph.inputs(k, codes[k])} | set(
            map(int, np.flatnonzero(graph.persistent))
        )
        if not wanted - written:
            return Plan.from_sequence(graph, [(0, k, codes[k]) for k in running])
        for v in wanted - written:
            for k in {int(graph.producer[v]), *graph.readers[v]}:
                codes[k] = 1


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
            if road != "trained":
                make = Interpreter if road == "interpreted" else generate
                outcome = make(plan, self.program, CPU).run(self.program.bind(self.model, self.tensors))
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
        choices = [lambda k, n: 1, lambda k, n: n, lambda k, n: min(n, 2)]
        draws = [random.Random(seed) for seed in range(count)]
        choices += [lambda k, n, draw=draw: draw.randint(1, n) for draw in draws]
        names = {way.name for node in self.graph.operations for way in node.implementations}
        choices += [preferring(self.graph, *group) for group in (*TOGETHER, *((name,) for name in sorted(names)))]
        return [plan_by(self.graph, choose) for choose in choices]


def computed(plan: Plan) -> list[tuple[Operation, int]]:
    runs = [s for s in plan.statements if isinstance(s, Compute)]
    return [(plan.graph.operations[s.operation], s.implementation - 1) for s in runs]


def ways_of(plan: Plan) -> list[str]:
    return [node.implementations[i].name for node, i in computed(plan)]


def used(plan: Plan) -> set[str]:
    """Names of the implementations that a plan runs, but the default, and the operators of optional operations."""
    ways = computed(plan)
    return {node.implementations[i].name for node, i in ways if i} | {n.name.split()[-1] for n, _ in ways if n.optional}


def first_of_monet(graph: Graph, budget: int) -> Solution:
    """The joint search's first solution, however long that takes on a busy machine."""
    heard: list[object] = []
    ended = lambda: any(schedule is not None for schedule in heard)  # noqa: E731
    told = lambda now: heard.append(now.schedule)  # noqa: E731
    return rx.solve(graph, budget, "monet", time_limit=300, on_progress=told, cancelled=ended)


def measured(plan: Plan, program, model, args) -> int:
    """Peak of the generated code of a plan, resident bytes included."""
    step = generate(plan, program, CPU)
    registers = program.bind(model, TrainingStep(model, args).tensors(args, {}))
    with exact_kernels(), CpuMeter() as meter, meter.section():
        result = step.run(registers)
    del result
    return meter.readings[0].highest - meter.readings[0].before + plan.graph.resident_bytes
