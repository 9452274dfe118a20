"""An experiment: a plan whose generated code Inductor compiles, beside the plan as it is and the model compiled whole.

A compiler may undo a plan: common subexpressions are what a recomputation is, and an order of its own moves the peak.
So the convolutions and matrix products that are left in the graph that is compiled are counted, and peak, time and
gradients are measured. Peaks are highest requested bytes during one step, without what is resident before it.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import remat_explorer as rx
from gpu_parts.memory import REPEATS, emptied, quiet
from gpu_parts.work import Work
from remat_explorer.capture import trace
from remat_explorer.capture.profiling.memory_meter import memory_meter
from remat_explorer.capture.step.placement import exact_kernels, torch_device
from remat_explorer.capture.step.training_step import TrainingStep
from remat_explorer.capture.stopwatch import seconds_of
from remat_explorer.runtime.generated_step import GeneratedStep, generate
from remat_explorer.solvers.strategies.registry import default_strategy

MODELS = {"vgg16": (32, 224, None), "residual_net": (4096, 32, None), "unet": (4, 208, None)}
TINY_MODELS = {"mlp": (64, None, None)}
SHARE, SECONDS = "60%", 5.0
WAYS = (
    "the plan",
    "the plan, compiled",
    "the plan, compiled in its own order",
    "the model, compiled",
    "the model, compiled with half the activations",
)
HEAVY = ("convolution", "mm", "bmm", "addmm")
RUNS = 5

Tensors = list[torch.Tensor | None]


def run(work: Work) -> None:
    """Each way on each model."""
    models = TINY_MODELS if work.tiny else MODELS
    studies: dict[str, Study] = {}

    def measure(name: str) -> dict[str, Any]:
        model, _, way = name.partition(": ")
        if model not in studies:
            studies.clear()
            emptied(work.device)
            studies[model] = Study(model, models[model], work.device)
        return studies[model].measured(way)

    work.each([f"{model}: {way}" for model in models for way in WAYS], measure)


class Study:
    """A model with a plan that recomputes.

    Args:
        name, size: of the model: batch, pixels, tokens.
        device: where it runs.
    """

    def __init__(self, name: str, size: tuple[Any, ...], device: str) -> None:
        loaded = rx.models.load(name, *size, device=device)
        self.module, self.args, self.device = loaded.module, loaded.args, torch_device(device)
        self.program = trace(self.module, self.args)
        graph = rx.profile(
            self.program.graph, self.module, self.args, device=device, repeats=REPEATS, on_progress=quiet
        )
        self.solution = rx.solve(graph, SHARE, default_strategy(graph), SECONDS)
        if self.solution.plan is None:
            self.solution = rx.solve(graph, "smallest", default_strategy(graph), SECONDS)
        assert self.solution.plan is not None
        self.step: GeneratedStep = generate(self.solution.plan, self.program, self.device)
        self.tensors = TrainingStep(self.module, self.args, {}, None).tensors(self.args, {})
        self.reference = self._planned(self.step.module)()

    def measured(self, way: str) -> dict[str, Any]:
        """Peak, time and results of one way."""
        from torch._functorch import config as partitioner
        from torch._inductor import config as compiler

        torch._dynamo.reset()
        counted: list[int] = []
        entry: dict[str, Any] = {}
        if way.startswith("the plan"):
            entry["predicted_peak"] = self.solution.plan.peak - self.solution.graph.resident_bytes  # type: ignore[union-attr]
            entry["calls"] = heavy_calls(self.step.module)
        if way == "the plan":
            return entry | self._timed(self._planned(self.step.module))
        inductor: Any = compiler
        partition: Any = partitioner
        with contextlib.ExitStack() as stack:
            stack.enter_context(inductor.patch(force_disable_caches=True))
            if way.endswith("own order"):
                stack.enter_context(inductor.patch(reorder_for_peak_memory=False, reorder_for_locality=False))
            if way.endswith("half the activations"):
                stack.enter_context(partition.patch(activation_memory_budget=0.5))
            compiled = torch.compile(
                self.step.module if way.startswith("the plan") else self.module, backend=counting(counted)
            )
            runs = self._planned(compiled) if way.startswith("the plan") else lambda: self._trained(compiled)
            begun = time.perf_counter()
            runs()
            entry["compile_seconds"] = time.perf_counter() - begun
            return entry | {"calls_compiled": sum(counted)} | self._timed(runs)

    def _planned(self, module: Callable[..., Any]) -> Callable[[], Tensors]:
        """A step of the plan: its results in the program's order."""

        def step() -> Tensors:
            with torch.no_grad():
                registers = self.program.bind(self.module, self.tensors)
                return list(module(*[registers.pop(node) for node in self.step.residents]))

        return step

    def _trained(self, module: Callable[..., torch.Tensor]) -> Tensors:
        """A step by autograd: the gradients stay until the next one."""
        for parameter in self.module.parameters():
            parameter.grad = None
        module(*self.args).backward()
        gradients = {name: parameter.grad for name, parameter in self.module.named_parameters()}
        return [gradients.get(one.name) if one.kind == "gradient" else None for one in self.program.results]

    def _timed(self, step: Callable[[], Tensors]) -> dict[str, Any]:
        with exact_kernels():
            results = step()
            pairs = zip(results, self.reference, strict=True)
            apart = [
                float((mine - theirs).abs().max())
                for (mine, theirs), one in zip(pairs, self.program.results, strict=True)
                if mine is not None and theirs is not None and one.kind == "gradient"
            ]
            del results
            for parameter in self.module.parameters():
                parameter.grad = None
            emptied(str(self.device))
            with memory_meter(self.device) as meter, meter.section():
                step()
            times = [seconds_of(step, self.device) for _ in range(RUNS)]
        return {
            "peak": meter.readings[0].highest,
            "seconds": statistics.median(times),
            "gradient_difference": max(apart, default=None),
            "gradients_compared": len(apart),
        }


def heavy_calls(module: Any) -> int:
    """Convolutions and matrix products, gradients among them, that a graph calls."""
    names = (getattr(getattr(node.target, "overloadpacket", None), "__name__", "") for node in module.graph.nodes)
    return sum(name.startswith(HEAVY) for name in names)


def counting(counted: list[int]) -> Callable[..., Any]:
    """Inductor as a back end that also counts what is left to it to compile."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(module: Any, *rest: Any, **options: Any) -> Any:
        counted.append(heavy_calls(module))
        return compile_fx_inner(module, *rest, **options)

    def backend(module: Any, inputs: Any) -> Any:
        return compile_fx(module, inputs, inner_compile=inner)

    return backend
