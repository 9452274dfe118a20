"""Profiles on disk, one JSON file for each key, so that the same graph on the same machine is measured once.

A cache must not be able to fail: a file that cannot be read, or does not hold what its key asks for, counts as none,
and a folder that cannot be written is left alone.

The key has what measured costs depend on: kernels and their arguments, the machine, and torch with its settings. The
graph file is not enough. Groups and dilation of a convolution, its data type among types of equal width, and the
strides of its input change the time and the workspace, but not one byte of the graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import operator
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from remat_explorer.cache_folder import cache_folder, entry_path
from remat_explorer.capture.captured_program import Call, Program
from remat_explorer.capture.graph_rewrites import state_bytes
from remat_explorer.capture.in_place import Overwriting
from remat_explorer.documents import quote, read_json, require_format, require_keys, write_json
from remat_explorer.entry_checks import require_bytes, require_list
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph

Key = dict[str, str | int | bool | None]
METERING = 1  # another number where operations are timed or metered otherwise on CUDA; it is no part of keys of a CPU
_PRECISIONS = ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv")
FORMAT, VERSION = "remat-explorer/profile", 3  # another version too when operations run or are metered otherwise
_PROFILE = ("format", "version", "key", "seconds", "workspace", "overwrites", "values", "resident")


def profile_key(program: Program, device: torch.device, repeats: int) -> Key:
    """Everything that two profiles must share to be one, as flat JSON.

    The traced program's own graph is taken, not the one that is to be profiled: that one may differ in costs, which a
    profile replaces. More timed runs are another, better profile.
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
    """SHA-256 over the calls of every operation: operators, shapes, strides and types of tensors, other arguments."""
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


@dataclass(frozen=True)
class Profile:
    """Measured numbers of the implementations of a graph's operations, in their order.

    Attributes:
        seconds: above 0; a cost of 0 would let a solver repeat an operation for nothing.
        workspace: bytes that are needed only while the operation runs.
        overwrites: whether an output takes over the storage that the implementation overwrites.
        values: bytes of the values, in their order.
        resident: bytes that are there before the first operation.

    Raises:
        RematError: if a number is impossible, or the first three differ in length.

    >>> Profile((0.5,), (-1,), (False,), (4,), 0)
    Traceback (most recent call last):
        ...
    remat_explorer.errors.RematError: a workspace is not a number of bytes: -1; expected a whole number of at least 0
    """

    seconds: tuple[float, ...]
    workspace: tuple[int, ...]
    overwrites: tuple[bool, ...]
    values: tuple[int, ...]
    resident: int

    def __post_init__(self) -> None:
        if not len(self.seconds) == len(self.workspace) == len(self.overwrites):
            raise RematError(f"{len(self.seconds)} times, but {len(self.workspace)} workspaces")
        for time in self.seconds:
            if not isinstance(time, float) or not math.isfinite(time) or time <= 0:
                raise RematError(f"a time of {quote(time)}; expected seconds above 0")
        for size in self.workspace:
            require_bytes(size, "a workspace", RematError)
        for size in (*self.values, self.resident):
            require_bytes(size, "a storage", RematError)
        for overwritten in self.overwrites:
            if not isinstance(overwritten, bool):
                raise RematError(f"{quote(overwritten)} for what is overwritten; expected true or false")

    def of(self, graph: Graph) -> Graph:
        """``graph`` with these numbers in place of its own; it keeps its structure, by which schedules know it."""
        ways = [way for node in graph.operations for way in node.implementations]
        numbers = zip(ways, self.seconds, self.workspace, self.overwrites, strict=True)
        measured = iter(
            [
                dataclasses.replace(
                    way,
                    cost=cost,
                    workspace=size,
                    overwrites=way.overwrites if over else None,
                    in_place=way.in_place and over,
                )
                for way, cost, size, over in numbers
            ]
        )
        operations = tuple(
            dataclasses.replace(node, implementations=tuple(next(measured) for _ in node.implementations))
            for node in graph.operations
        )
        values = tuple(
            dataclasses.replace(value, bytes=size) for value, size in zip(graph.values, self.values, strict=True)
        )
        contents = {"values": values, "operations": operations, "resident_bytes": self.resident}
        profiled = dataclasses.replace(graph, **contents, captured_structure=None)
        if profiled.structure == graph.structure:
            return profiled
        return dataclasses.replace(profiled, captured_structure=graph.structure)


def the_most_of(profiles: Sequence[Profile]) -> Profile:
    """The largest numbers of several profiles of one graph, such as those of several processes.

    An output takes over a storage where it does so in all.
    """
    seconds, workspace, values = (
        tuple(map(max, zip(*(getattr(one, name) for one in profiles), strict=True)))
        for name in ("seconds", "workspace", "values")
    )
    overwrites = tuple(map(all, zip(*(one.overwrites for one in profiles), strict=True)))
    return Profile(seconds, workspace, overwrites, values, max(one.resident for one in profiles))


def load_profile(key: Key, implementations: int, values: int) -> Profile | None:
    """The profile of that key, or None if there is none that can be trusted; counts are those of the graph."""
    try:
        document = require_keys(read_json(entry_path("profile", key), RematError), _PROFILE, "the profile", RematError)
        require_format(document, FORMAT, VERSION, RematError)
        names = ("seconds", "workspace", "overwrites", "values")
        lists = (tuple(require_list(document[name], name, RematError)) for name in names)
        profile = Profile(*lists, resident=document["resident"])
    except RematError:
        return None
    fitting = (len(profile.seconds), len(profile.values)) == (implementations, values)
    return profile if document["key"] == key and fitting else None


def store_profile(key: Key, profile: Profile) -> None:
    """Write the profile atomically, or not at all."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "key": key,
        "seconds": profile.seconds,
        "workspace": profile.workspace,
        "overwrites": profile.overwrites,
        "values": profile.values,
        "resident": profile.resident,
    }
    with contextlib.suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_json(entry_path("profile", key), document)
