"""The one line that brings a budget into torch.compile: `compile`.

A trial step of the compiled code is measured before anybody trains with it (`trial_peak`), and where it takes too much,
their workspace is measured: by one run of a plan (`measure_plan_workspace`) or one by one (`measure_workspace`).
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._functorch import config
from torch._guards import tracing
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.compile_fx import compile_fx
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture import Profile, ProfilingRun, Program, Registers, StorageCensus, no_autocast, shard_groups
from remat_explorer.capture.eager_kernels import eager_kernels
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import ExecutionError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.quantities import exact_bytes
from remat_explorer.runtime.compiled.inductor_fusion import FusionWithinBudget
from remat_explorer.runtime.compiled.partitioner import Partitioner, PlannedGraph
from remat_explorer.solvers import Budget, require_budget

BACKENDS = ("aot_eager", "inductor")
MAX_REPLANS = 3  # before the smallest plan, where the measured peak exceeds the budget


def compile(
    model: nn.Module,
    budget: Budget,
    strategy: str = "optimal",
    *,
    backend: str = "aot_eager",
    time_limit: Seconds = 60.0,
) -> Any:
    """`torch.compile` of a model whose training steps keep to a memory budget.

    The joint graph that AOTAutograd traces is solved, and its forward and backward graph follow the schedule: our
    order, with what is recomputed in the backward graph. With "aot_eager" gradients are bit for bit those of the model,
    dropout included: what draws random numbers and is repeated saves the generator's state and repeats from it.

    With "inductor" an operation is what Inductor is expected to run in one kernel. It asks before each fusion, and one
    that would take more memory than the budget has room for, or that stands against the plan's order, is refused; at
    the end its kernels run in the plan's order. Its passes that order for memory and locality, change layouts or keep
    memory for reuse are off.

    Costs are predicted, and so is the peak, without the workspace of kernels. So a trial step of the compiled code is
    measured, with zeros for inputs. If it exceeds the budget, the workspace is measured, of each operation or of the
    library calls that Inductor leaves, and the step is planned again with that; then for less by the excess. It is
    planned three times again at most, and at last with the smallest plan that is known. A warning says if that was not
    enough.

    The attribute ``backend`` of what is returned has a `PlannedGraph` for each graph in ``graphs``: its solution, the
    predicted and the measured peak, and how far apart they are. Its ``lower_bound`` and ``gap`` are for the budget that
    was asked for; those of its solution for the bytes that it was planned for. Both are of the operations that were
    planned, whatever is fused of them.

    The model is compiled with ``fullgraph=True`` and ``dynamic=False``: a graph break is an error, since each graph
    would have the whole budget while it waits for the others, and inputs of other sizes are solved anew, with
    percentages of what they take. In evaluation, and where gradients are switched off, nothing is planned.

    Args:
        model: what to train.
        budget: bytes, "2 GiB", "60%" of what keeping everything takes, "smallest", or "40% of the way" from that to
            keeping everything; parameters, inputs, gradients and
            gradients of the outputs are included, an optimizer's state is not.
        strategy, time_limit: as for `remat_explorer.solve`; the search runs in the first step.
        backend: "aot_eager", which runs the operations as they are, or "inductor".

    Raises:
        ExecutionError: if the model is sharded by `torch.distributed.fsdp.fully_shard`.
        UnknownNameError: if there is no such back end. In the first step torch.compile raises an error of its own
            with ours in its text: if no schedule fits, or the graph has no plan.

    >>> layers = [layer for _ in range(6) for layer in (nn.Linear(32, 32), nn.Tanh())]
    >>> compiled = compile(nn.Sequential(*layers), budget="80%")
    >>> compiled(torch.ones(256, 32)).sum().backward()
    >>> (graph,) = compiled.backend.graphs
    >>> graph.measured_peak <= graph.budget
    True
    """
    require_arguments(compile, locals())
    require_budget(budget)
    if backend not in BACKENDS:
        raise UnknownNameError("back end", str(backend), BACKENDS)
    if shard_groups(model):
        raise ExecutionError(
            "the model is sharded (fully_shard), whose hooks break what torch.compile traces into several graphs; "
            "rx.rematerialize takes such a model"
        )
    made = BudgetedBackend(budget, strategy, time_limit, backend)
    compiled = torch.compile(model, backend=made, fullgraph=True, dynamic=False)
    vars(compiled)["backend"] = made  # an assignment would go to the model
    return compiled


class BudgetedBackend:
    """A back end of torch.compile that keeps to a budget.

    Attributes:
        budget, strategy, time_limit: as for `compile`.
        graphs: what was compiled for training, in order: one for each combination of sizes and modes that came.
    """

    def __init__(self, budget: Budget, strategy: str, time_limit: float, backend: str) -> None:
        self.budget, self.strategy, self.time_limit, self.backend = budget, strategy, time_limit, backend
        self.graphs: list[PlannedGraph] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile one graph, as torch.compile asks for it; again for less while a trial step exceeds the budget."""
        budget, best = self.budget, None
        asked, at_budget, measured, unforeseen = 0, None, None, 0
        in_place = self.backend == "aot_eager"
        for turn in itertools.count(1):
            parts = Partitioner(budget, self.strategy, self.time_limit, in_place, turn > 1, measured)
            fusion = None if in_place else FusionWithinBudget(parts, asked or None, unforeseen)
            try:
                run = _compiled(parts, fusion, module, inputs)
            except ExecutionError:
                if best is None:
                    raise
                break  # this strategy has no schedule for less
            if not parts.planned:
                return run  # no gradients are wanted
            graph = parts.planned[-1]
            asked = asked or graph.budget
            if graph.solution.budget == asked:
                at_budget = graph.solution
            graph.measured_peak = trial_peak(run, inputs) + graph.solution.graph.resident_bytes
            graph.budget, graph.turns = asked, turn
            if fusion is not None and fusion.peak is not None:
                graph.fused_peak = fusion.peak
                unforeseen = 0 if measured is None else max(0, graph.measured_peak - fusion.peak)
            if best is None or graph.measured_peak < (best[1].measured_peak or 0):
                best = run, graph
            excess = graph.measured_peak - asked
            if excess <= 0 or (isinstance(budget, int) and graph.solution.budget > budget) or turn > MAX_REPLANS + 1:
                break  # it keeps to the budget, or there is no smaller plan
            if turn == 1 and parts.program is not None and graph.solution.plan is not None:
                if fusion is None:
                    budget, measured = asked, measure_plan_workspace(graph.solution.plan, parts.program).of
                else:
                    budget = asked - max(0, (graph.fused_peak or 0) - graph.predicted_peak)
                    measured = partial(with_workspace, workspace=measure_workspace(parts.program, fusion.called))
            elif turn <= MAX_REPLANS:
                budget = max(1, min(graph.solution.budget, graph.predicted_peak) - excess)
            else:
                budget = 1  # the smallest plan
        assert best is not None  # the first turn has made one, or raised
        run, graph = best
        graph.at_budget = at_budget
        if not graph.within_budget:
            warnings.warn(
                f"compiled code takes {exact_bytes(graph.measured_peak or 0)}, above the budget of "
                f"{exact_bytes(graph.budget)}, planned for {exact_bytes(graph.solution.budget)}; give a larger budget",
                stacklevel=2,
            )
        self.graphs.append(graph)
        return run


@config.patch(force_non_lazy_backward_lowering=True)
def _compiled(parts: Partitioner, fusion: FusionWithinBudget | None, module: GraphModule, inputs: Sequence[Any]) -> Any:
    """One graph, by Inductor with choices of its own, or by running the operations as they are."""
    if fusion is None:
        aot = aot_autograd(
            fw_compiler=boxed_nop, bw_compiler=boxed_nop, partition_fn=parts, keep_inference_input_mutations=True
        )
        with eager_kernels():
            return aot(module, inputs)
    if not torch.is_grad_enabled() or not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return compile_fx(module, inputs)
    # C++ kernels in a row make one function, before which all of their results are allocated; here each is its own.
    with V.set_choices_handler(fusion), mock.patch.object(CppScheduling, "MAX_FUSED_KERNEL_ARGS_NUM", 0):
        return compile_fx(module, inputs, config_patches=fusion.settings())


def trial_peak(compiled: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """The most bytes that a forward and a backward pass take beside inputs and the gradients of outputs.

    Parameters are the model's own, which a step only reads; other inputs are zeros of the same sizes, so that what is
    counted does not depend on them, and buffers stay as they are. A first step compiles and warms up. The random state
    stays as it is.
    """
    with tracing(None), _disable_current_modes(), torch.random.fork_rng(), torch.enable_grad():
        given = [zeros_like_input(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        device = next((value.device for value in given if isinstance(value, torch.Tensor)), torch.device("cpu"))
        _trial_step(compiled, given, None)
        return _trial_step(compiled, given, memory_meter(device))


def zeros_like_input(value: torch.Tensor) -> torch.Tensor:
    """The parameter itself, or zeros of the size and strides of another tensor, or of a FakeTensor."""
    if isinstance(value, nn.Parameter) and not isinstance(value, FakeTensor):
        return value
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_()
    return made.requires_grad_(value.requires_grad)


def _trial_step(compiled: Callable[..., Any], given: Sequence[Any], meter: Any) -> int:
    wanted = [value for value in given if isinstance(value, torch.Tensor) and value.requires_grad]
    tangents = [torch.ones_like(out) for out in _trained_outputs(compiled, given)]
    if meter is None:
        torch.autograd.grad(_trained_outputs(compiled, given), wanted, tangents, allow_unused=True)
        return 0
    with meter, meter.section():
        torch.autograd.grad(_trained_outputs(compiled, given), wanted, tangents, allow_unused=True)
    return meter.readings[-1].highest - meter.readings[-1].before


def _trained_outputs(compiled: Callable[..., Any], given: Sequence[Any]) -> list[torch.Tensor]:
    return [out for out in compiled(*given) if isinstance(out, torch.Tensor) and out.requires_grad]


def measure_workspace(program: Program, operations: Iterable[int]) -> dict[int, int]:
    """Measured workspace of some operations in bytes, each run by itself, with zeros for inputs."""
    device = _device_of(program)
    census, choices = StorageCensus(program, device), [(k, 1) for k in operations]
    with _undisturbed(program), memory_meter(device) as meter:
        for k, code in choices:
            body = program.bodies[k]
            made = {call.node for call in body.calls}
            sources = {node for call in body.calls for node in call.sources if node not in made}
            registers = Registers({node: _zero_tensor(program, node) for node in sources})
            census.run((k, code), body, registers, meter.section)
    census.read(meter.readings)
    sizes = census.bytes_of_values()
    return {k: census.workspace((k, code), sizes) for k, code in choices}


def with_workspace(graph: Graph, workspace: Mapping[int, int]) -> Graph:
    """The graph with this workspace of operations by their numbers, and none of the others."""
    ways = [replace(node.implementations[0], workspace=workspace.get(k, 0)) for k, node in enumerate(graph.operations)]
    pairs = zip(graph.operations, ways, strict=True)
    return replace(graph, operations=tuple(replace(node, implementations=(way,)) for node, way in pairs))


@contextmanager
def _undisturbed(program: Program) -> Iterator[None]:
    """Kernels run as in a step, without a trace in the random state, although something is being compiled."""
    device = _device_of(program)
    devices = [device] if device.type == "cuda" else []
    with tracing(None), _disable_current_modes(), torch.no_grad(), no_autocast(), torch.random.fork_rng(devices):
        yield


def _zero_tensor(program: Program, node: Node) -> torch.Tensor:
    return getattr(program.module, str(node.target)) if node.op == "get_attr" else zeros_like_input(program.fakes[node])


def _device_of(program: Program) -> torch.device:
    """The device of the first input that is not empty."""
    placeholders = [node for node in program.module.graph.nodes if node.op == "placeholder"]
    return next((program.fakes[n].device for n in placeholders if program.fakes[n].numel()), torch.device("cpu"))


def measure_plan_workspace(plan: Plan, program: Program) -> Profile:
    """Measured workspace and storages of the operations of a joint graph's program, with the costs that its graph has.

    The plan runs once, with zeros for inputs, in the memory that the plan takes and the workspace. The random state
    stays as it is. An ExecutionError if an operator gives a tensor in the storage of another, or holds on to memory.
    """
    graph = program.graph
    device = _device_of(program)
    census = StorageCensus(program, device)
    given = [node for node in program.module.graph.nodes if node.op in ("placeholder", "get_attr")]
    with _undisturbed(program):
        registers: Registers = Registers({node: _zero_tensor(program, node) for node in given})
        ProfilingRun(plan, program, device, lambda k: None).metered(registers, census)
    choices, sizes = [(k, 1) for k in range(graph.n)], census.bytes_of_values()
    return Profile(
        tuple(float(operation.implementations[0].cost) for operation in graph.operations),
        tuple(census.workspace(choice, sizes) for choice in choices),
        tuple(census.takes_over(choice, sizes) for choice in choices),
        sizes,
        graph.resident_bytes,
    )
