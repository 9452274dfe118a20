"""What the kernels of a joint graph take beside inputs and outputs, measured by one run of a plan."""

from __future__ import annotations

import torch
from torch._guards import tracing
from torch.utils._python_dispatch import _disable_current_modes

from remat_explorer.capture.operations.program import Program, Registers
from remat_explorer.capture.profiling.profile_cache import Profile
from remat_explorer.capture.profiling.profiling_run import ProfilingRun
from remat_explorer.capture.profiling.storage_census import StorageCensus
from remat_explorer.capture.step.autocast import no_autocast
from remat_explorer.plan import Plan
from remat_explorer.runtime.compiled.trial import stand_in


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
    placeholders = [node for node in program.module.graph.nodes if node.op == "placeholder"]
    device = next((program.fakes[n].device for n in placeholders if program.fakes[n].numel()), torch.device("cpu"))
    devices = [device] if device.type == "cuda" else []
    census = StorageCensus(program, device)
    with tracing(None), _disable_current_modes(), torch.no_grad(), no_autocast(), torch.random.fork_rng(devices):
        registers: Registers = {node: stand_in(program.fakes[node]) for node in placeholders}
        for node in program.module.graph.nodes:
            if node.op == "get_attr":
                registers[node] = getattr(program.module, str(node.target))
        ProfilingRun(plan, program, device, lambda k: None).metered(registers, census)
    choices, sizes = [(k, 1) for k in range(graph.n)], census.bytes_of_values()
    return Profile(
        tuple(float(operation.implementations[0].cost) for operation in graph.operations),
        tuple(census.workspace(choice, sizes) for choice in choices),
        tuple(census.takes_over(choice, sizes) for choice in choices),
        sizes,
        graph.resident_bytes,
    )
