"""A model and its inputs on the device where they shall run, its kernels, and a check that a graph is theirs."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from remat_explorer.capture.inputs_and_outputs import map_tensors, tensors_in
from remat_explorer.errors import ExecutionError
from remat_explorer.graph import Graph
from remat_explorer.quantities import exact_bytes


@dataclass(frozen=True, eq=False)
class Placement:
    """A model and inputs that all lie on ``device``; the model is the person's own unless it had to be moved."""

    device: torch.device
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def torch_device(name: str | torch.device) -> torch.device:
    """The device called ``name``: a torch device, or "auto" for CUDA where there is one and the CPU otherwise.

    Raises:
        ExecutionError: if the device does not exist or is none that can be metered.

    >>> torch_device("cpu")
    device(type='cpu')
    """
    try:
        target = torch.device(name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
    except RuntimeError:
        raise ExecutionError(f'{name!r} is not a device; give "auto", "cpu" or "cuda"') from None
    if target.type not in ("cpu", "cuda"):
        raise ExecutionError(f'memory cannot be measured on {name!r}; give "auto", "cpu" or "cuda"')
    if target.type == "cuda" and not torch.cuda.is_available():
        raise ExecutionError(
            f'{name!r} was asked for, but torch finds no CUDA device here; give "cpu". Without one a graph for CUDA '
            'can be captured, solved and studied (kernels="cuda"), not run or measured'
        )
    if target.type == "cuda" and target.index is None:
        target = torch.device("cuda", torch.cuda.current_device())
    return target


def is_absent_cuda(name: str | torch.device) -> bool:
    """Whether a CUDA device is named, and torch finds none.

    >>> is_absent_cuda("cpu")
    False
    """
    return str(name).partition(":")[0] == "cuda" and not torch.cuda.is_available()


def model_device(model: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> torch.device:
    """Where a model lies: the device of its first parameter or buffer, or of its first input where it has none.

    >>> model_device(nn.Linear(1, 1))
    device(type='cpu')
    """
    tensors = itertools.chain(model.parameters(), model.buffers(), tensors_in((tuple(args), dict(kwargs or {}))))
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def place(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, device: str | torch.device | None
) -> Placement:
    """Bring a model and its inputs to a device, as `torch_device` names it, or inputs to the model for None.

    Raises:
        ExecutionError: if there is no such device, a tensor has no content, or the model must be moved and cannot be
            copied.
    """
    _require_content(model, args, kwargs)
    target = torch_device(str(model_device(model, args, kwargs)) if device is None else device)

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(target)

    if any(t.device != target for t in itertools.chain(model.parameters(), model.buffers())):
        try:
            model = copy.deepcopy(model).to(target)
        except Exception as error:  # whatever a person's model holds
            raise ExecutionError(
                f"{type(model).__name__} cannot be copied to {target} ({type(error).__name__}: {error}); bring it "
                f"there yourself, with model.to({str(target)!r})"
            ) from error
    return Placement(target, model, map_tensors(move, tuple(args)), map_tensors(move, dict(kwargs or {})))


def _require_content(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    state = itertools.chain(model.named_parameters(), model.named_buffers())
    named = ((f"{name!r} of the model", tensor) for name, tensor in state)
    inputs = (("an input", tensor) for tensor in tensors_in((tuple(args), dict(kwargs or {}))))
    for name, tensor in itertools.chain(named, inputs):
        if isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
            raise ExecutionError(
                f"{name} has a shape but no content (a FakeTensor or on the meta device), which is enough to capture "
                'and solve but not to run; make it for real, for instance with model.to_empty(device="cpu")'
            )


@contextlib.contextmanager
def exact_kernels() -> Iterator[None]:
    """For a comparison: cuDNN without autotuning and with deterministic kernels, on both sides alike, for training.

    Results can then be equal bit for bit, and an operation needs the same workspace whenever it runs. Training takes
    what the person has set.
    """
    cudnn: Any = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        with torch.inference_mode(False):  # copies of buffers made within it could not be written
            yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def require_same_structure(expected: Graph, captured: Graph, device: torch.device, read: object = "") -> None:
    """Refuse to run a graph's schedule with the operations of another graph.

    Args:
        expected, captured: the graph with the schedule, and that of the model and inputs at hand.
        device: where both are to run; kernels, and so operations and values, are others on another device.
        read: what the second capture read out of its inputs, in words, which may be why they differ.

    Raises:
        ExecutionError: naming the first operation or value in which they differ.
    """
    hint = f"capture the model again, with the same inputs, on {device}, where it runs here"
    if expected.options is not None and expected.options.kernels is not None:
        hint += f" (it was made without a device, for CUDA's kernels of {expected.options.kernels})"
    if str(read):
        hint += f" (what it computes follows from what was read out of the inputs; here {read})"
    if (expected.n, len(expected.values)) != (captured.n, len(captured.values)):
        raise ExecutionError(
            f"the graph has {expected.n} operations and {len(expected.values)} values, but the model captured here "
            f"has {captured.n} and {len(captured.values)}: {hint}"
        )
    for mine, theirs in zip(expected.operations, captured.operations, strict=True):
        same = (mine.name, mine.phase, mine.optional, len(mine.implementations))
        differs = same != (theirs.name, theirs.phase, theirs.optional, len(theirs.implementations))
        for way, other in zip(mine.implementations, theirs.implementations, strict=False):
            differs |= (way.name, way.inputs, way.outputs) != (other.name, other.inputs, other.outputs)
            # a graph that overwrites nothing can be run: its plans give every output a storage of its own
            differs |= way.overwrites not in (None, other.overwrites)
        if differs:
            raise ExecutionError(f"the graph's operation {mine.name!r} differs from {theirs.name!r} here: {hint}")
    corrected = expected.captured_structure is not None  # bytes are measured ones, then
    if corrected and expected.structure != captured.structure:
        raise ExecutionError(f"the graph was profiled after another capture than that of the model here: {hint}")
    for mine, theirs in zip(expected.values, captured.values, strict=True):
        if (mine.bytes, mine.persistent) != (theirs.bytes, theirs.persistent) and not corrected:
            raise ExecutionError(
                f"the graph's value {mine.name!r} has {exact_bytes(mine.bytes)}, but "
                f"{exact_bytes(theirs.bytes)} here: {hint}"
            )
    if expected.resident_bytes != captured.resident_bytes and not corrected:
        raise ExecutionError(
            f"resident in the graph are {exact_bytes(expected.resident_bytes)}, but here "
            f"{exact_bytes(captured.resident_bytes)}: {hint}"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; on the CPU torch has no class of its own for it.

    >>> is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
