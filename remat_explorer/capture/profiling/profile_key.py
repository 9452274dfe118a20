"""What measured costs depend on: the kernels and their arguments, the machine, and torch with its settings.

The graph file is not enough. Groups and dilation of a convolution, its data type among types of equal width, and the
strides of its input change the time and the workspace, but not one byte of the graph.
"""

from __future__ import annotations

import hashlib
import operator
import os
import platform
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from remat_explorer.capture.graph_rewrites import state_bytes
from remat_explorer.capture.operations.in_place import Overwriting
from remat_explorer.capture.operations.program import Call, Program

Key = dict[str, str | int | bool | None]
METERING = 1  # another number where operations are timed or metered otherwise on CUDA; it is no part of keys of a CPU
_PRECISIONS = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv")


def profile_key(program: Program, device: torch.device, repeats: int) -> Key:
    """Everything that two profiles must share to be one, as flat JSON.

    Args:
        program: the traced model. Its own graph is taken, not the one that is to be profiled: that one may differ in
            costs, which a profile replaces.
        device: where it runs.
        repeats: timed runs; more of them are another, better profile.
    """
    states = {"generator_state": state_bytes(device.type)} if any(body.random for body in program.bodies) else {}
    return {
        "graph": program.graph.sha256,
        "program": program_fingerprint(program),
        "repeats": repeats,
        **states,
        **machine_of(device),
    }


def program_fingerprint(program: Program) -> str:
    """SHA-256 over the calls of every operation: operators, shapes, strides and types of tensors, other arguments.

    >>> from remat_explorer.capture import trace
    >>> def fingerprint(**options):
    ...     model = torch.nn.Conv1d(4, 4, 3, padding="same", **options)
    ...     return program_fingerprint(trace(model, (torch.ones(1, 4, 8),)))
    >>> fingerprint() == fingerprint(), fingerprint() == fingerprint(dilation=2)
    (True, False)
    """
    digest = hashlib.sha256()
    others = (body for choice in program.choices.values() for body in choice if body is not None)
    for body in (*program.bodies, *program.in_place.values(), *others):
        for call in body.calls:
            digest.update(f"{name_of_call(call)}{_arguments(call, program)}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()


def name_of_call(call: Call) -> str:
    """The operator that is called, the same in every process."""
    if isinstance(call.target, OpOverload | Overwriting):
        return str(call.target)
    return getattr(call.target, "__qualname__", str(call.target))  # a function's text would hold its address


def _arguments(call: Call, program: Program) -> str:
    given: Any = map_arg((call.args, call.kwargs), program.fakes.__getitem__)
    return repr(pytree.tree_map_only(torch.Tensor, _layout, given))


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return str(tensor.dtype), tensor.device.type, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def machine_of(device: torch.device) -> Key:
    """The device, torch, and the settings of torch by which it chooses kernels.

    The CPU is part of it on CUDA too, since it launches the kernels.
    """
    backends = torch.backends
    machine: Key = {
        "device": device.type,
        "processor": processor_name(),
        "torch": torch.__version__,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if device.type == "cuda":
        machine["metering"] = METERING
        machine["gpu"] = torch.cuda.get_device_name(device)
        machine["cudnn"] = backends.cudnn.version() if backends.cudnn.enabled else None
        machine["cudnn_deterministic"] = bool(backends.cudnn.deterministic)
        machine["cudnn_benchmark"] = bool(backends.cudnn.benchmark)
        machine["cudnn_benchmark_limit"] = backends.cudnn.benchmark_limit
        machine["cublas_workspace"] = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    else:
        machine["threads"] = torch.get_num_threads()
        machine["instructions"] = backends.cpu.get_cpu_capability()
        machine["onednn"] = bool(backends.mkldnn.enabled)
    for name in _PRECISIONS:
        machine[f"{name} precision"] = operator.attrgetter(f"{name}.fp32_precision")(backends)
    return machine


def processor_name() -> str:
    """The model of the CPU as Linux names it; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        field, _, name = line.partition(":")
        if field.strip() == "model name":
            return name.strip()
    return platform.processor() or platform.machine()
