"""What the kernels of a joint graph take beside inputs and outputs, measured by one run of a plan, or one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch._guards import tracing
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.autocast import no_autocast
from remat_explorer.capture.captured_program import Program, Registers
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.capture.profile_cache import Profile
from remat_explorer.capture.profiling import ProfilingRun
from remat_explorer.capture.storage_census import StorageCensus
from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.runtime.compiled.trial import stand_in


def workspace_of(program: Program, operations: Iterable[int]) -> dict[int, int]:
    """Measured workspace of some operations in bytes, each run by itself, with zeros for inputs.

    Args:
        program: of a joint graph; each operation has one implementation.
        operations: those that run as they are, and not in a kernel of the compiler's own.
    """
    device = _device_of(program)
    census, choices = StorageCensus(program, device), [(k, 1) for k in operations]
    with _undisturbed(program), memory_meter(device) as meter:
        for k, code in choices:
            body = program.bodies[k]
            made = {call.node for call in body.calls}
            sources = {node for call in body.calls for node in call.sources if node not in made}
            registers = Registers({node: _tensor(program, node) for node in sources})
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


def _tensor(program: Program, node: Node) -> torch.Tensor:
    return getattr(program.module, str(node.target)) if node.op == "get_attr" else stand_in(program.fakes[node])


def _device_of(program: Program) -> torch.device:
    """The device of the first input that is not empty."""
    placeholders = [node for node in program.module.graph.nodes if node.op == "placeholder"]
    return next((program.fakes[n].device for n in placeholders if program.fakes[n].numel()), torch.device("cpu"))


def measured_workspace(plan: Plan, program: Program) -> Profile:
    """Measured workspace and storages of the program's operations, with the costs that its graph has.

    The plan runs once, with zeros for inputs, in the memory that the plan takes and the workspace. The random state
    stays as it is.

    Args:
        plan: of the program's graph.
        program: of a joint graph; each operation has one implementation.

    Raises:
        OutOfMemoryError: if memory does not hold it.
        ExecutionError: if an operator gives a tensor in the storage of another, or holds on to memory.
    """
    graph = program.graph
    device = _device_of(program)
    census = StorageCensus(program, device)
    given = [node for node in program.module.graph.nodes if node.op in ("placeholder", "get_attr")]
    with _undisturbed(program):
        registers: Registers = Registers({node: _tensor(program, node) for node in given})
        ProfilingRun(plan, program, device, lambda k: None).metered(registers, census)
    choices, sizes = [(k, 1) for k in range(graph.n)], census.bytes_of_values()
    return Profile(
        tuple(float(operation.implementations[0].cost) for operation in graph.operations),
        tuple(census.workspace(choice, sizes) for choice in choices),
        tuple(census.takes_over(choice, sizes) for choice in choices),
        sizes,
        graph.resident_bytes,
    )
