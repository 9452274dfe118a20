"""Parameters of which each process holds a part: the groups that `torch.distributed.fsdp.fully_shard` has made.

A group is what one call of it has sharded: its parameters are gathered together, and so are their gradients summed.
Nothing here imports torch.distributed: where nobody did, nothing is sharded.

A collective waits for every process, so one that goes another way, or fails alone, leaves the others waiting. What a
process is about to do is told first (`ProcessGroup`), and all of them refuse where it differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from remat_explorer.errors import CaptureError, ExecutionError

_STEP = "call set_requires_gradient_sync(True), and add up the losses of several batches in one step instead"
_HALF = "train in float32 or bfloat16"


@dataclass(frozen=True)
class ShardGroup:
    """Parameters that are gathered together."""

    path: str  # of the module that was sharded
    names: tuple[str, ...]  # of the parameters, in the order in which they lie in what is sent
    processes: str  # the name of the process group
    count: int  # how many processes share each parameter out, by rows
    rank: int  # which of them this is


def shard_groups(model: nn.Module) -> tuple[ShardGroup, ...]:
    """The groups of a model, in the order of its modules; none where nothing is sharded.

    Raises:
        CaptureError: if it is sharded in a way that no plan has, with what to do.

    >>> shard_groups(nn.Linear(1, 1))
    ()
    """
    groups: list[ShardGroup] = []
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for path, module in _sharded_modules(model):
        where = repr(path) if path else "the model"
        state: Any = module._get_fsdp_state()  # type: ignore[operator]
        if len(state._modules) > 1:
            raise _refusal(where, "together with other modules", "call fully_shard for each module by itself")
        for group in _groups_of(state):
            _require_supported(where, group)
            parameters = [_parameter(entry) for entry in group.fsdp_params]
            found = tuple(names[id(parameter)] for parameter in parameters)
            processes = group.mesh_info.shard_process_group
            groups.append(ShardGroup(path, found, processes.group_name, processes.size(), processes.rank()))
    if len({group.processes for group in groups}) > 1:
        raise _refusal("the model", "by several groups of processes", "give every fully_shard the same mesh")
    return tuple(groups)


def reshard(model: nn.Module) -> None:
    """Let the model hold its own parts alone; after a forward pass without gradients it has whole parameters."""
    for _, module in _sharded_modules(model):
        module.reshard()  # type: ignore[operator]


def is_sharded(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of several processes together."""
    return isinstance(tensor, _loaded("torch.distributed.tensor", "DTensor"))


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of a tensor: of one that is not sharded, all of it."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        return tensor.to_local()  # type: ignore[attr-defined]


def whole_like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without content in the shape that a sharded one has for all processes together; for a fake mode."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def rows_of_part(rows: int, count: int) -> int:
    """Rows of each process, padding included, which the last ones may have.

    >>> rows_of_part(8, 2), rows_of_part(5, 2)
    (4, 3)
    """
    return -(-rows // count)


def as_part_of(owner: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient of this process's part as autograd knows it: of a parameter that is not sharded, itself."""
    if not is_sharded(owner):
        return gradient
    spec: Any = owner
    layout = {"shape": owner.shape, "stride": owner.stride(), "run_check": False}
    return _loaded("torch.distributed.tensor", "DTensor").from_local(
        gradient, spec.device_mesh, spec.placements, **layout
    )


def remove_gather_hooks(model: nn.Module) -> None:
    """Take away the hooks that gather parameters around forward; the caller puts them back."""
    for _, module in _sharded_modules(model):
        state: Any = module._get_fsdp_state()  # type: ignore[operator]
        own = vars(module)
        for name, handle in (
            ("_forward_pre_hooks", state._pre_forward_hook_handle),
            ("_forward_hooks", state._post_forward_hook_handle),
        ):
            for registry in (own[name], own[f"{name}_with_kwargs"]):
                registry.pop(handle.id, None)


def _require_supported(where: str, group: Any) -> None:
    policy, kind = group.mp_policy, type(group.mesh_info).__name__
    parameters = [_parameter(entry) for entry in group.fsdp_params]
    comms = (type(getattr(group, name, None)).__name__ for name in ("_all_gather_comm", "_reduce_scatter_comm"))
    if kind != "FSDPMeshInfo":
        raise _refusal(where, f"over a mesh of several dimensions ({kind})", "give fully_shard a mesh of one")
    if any(part is not None for part in (policy.param_dtype, policy.reduce_dtype, policy.output_dtype)):
        advice = "leave out mp_policy, and use torch.autocast or a model in bfloat16"
        raise _refusal(where, "with a policy of mixed precision", advice)
    if type(group.offload_policy).__name__ != "OffloadPolicy":
        raise _refusal(where, "with parameters on the CPU in between (CPUOffloadPolicy)", "leave out offload_policy")
    if any(entry.is_dtensor or entry.fsdp_placement.dim != 0 for entry in group.fsdp_params):
        advice = "leave out shard_placement_fn and tensor parallelism"
        raise _refusal(where, "in another way than by rows of plain parameters", advice)
    if any(hasattr(local_part(parameter), "fsdp_pre_all_gather") for parameter in parameters):
        raise _refusal(where, "with tensors that change what is gathered", "take plain tensors")
    if len({parameter.dtype for parameter in parameters}) > 1:
        raise _refusal(where, "with parameters of several types", "call fully_shard for each type, or cast them")
    if any(parameter.dtype == torch.float16 for parameter in parameters):
        raise _refusal(where, "in float16, whose gradients are scaled on the way", _HALF)
    if not group.reduce_grads:
        raise _refusal(where, "without its gradients being summed in this step", _STEP)
    asked = (group.gradient_divide_factor, group._all_reduce_hook, group.force_sum_reduction_for_comms or None)
    if any(part is not None for part in asked) or not all(name.startswith("Default") for name in comms):
        advice = "leave out set_gradient_divide_factor, set_all_reduce_hook, set_custom_all_gather and the like"
        raise _refusal(where, "with a sum of gradients or a collective of its own", advice)


def _refusal(where: str, how: str, advice: str) -> CaptureError:
    return CaptureError(f"{where} is sharded (fully_shard) {how}, which no plan has: {advice}")


def _parameter(entry: Any) -> torch.Tensor:
    return getattr(entry._module_info.module, entry._module_info.param_name)


def _groups_of(state: Any) -> list[Any]:
    several = getattr(state, "_fsdp_param_groups", None)  # torch 2.11 has one
    return [state._fsdp_param_group] * (state._fsdp_param_group is not None) if several is None else several


def _sharded_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    kind = _loaded("torch.distributed.fsdp", "FSDPModule")
    return ((path, module) for path, module in model.named_modules() if isinstance(module, kind))


def _loaded(place: str, name: str) -> Any:
    """A class, without importing it: if nobody did, there is no object of it."""
    return getattr(sys.modules.get(place), name, ())


PROFILE, MEASURED, SOLUTION, STEP, FAILED = range(5)
_DOES = (
    "captures and profiles a step",
    "has profiled a step",
    "looks for a schedule",
    "begins a step",
    "has failed, and says why",
)
_ALIKE = (
    "Collectives have to come in the same order on each: give every process inputs of the same sizes, such as with "
    "drop_last=True, and change models and modes on all of them alike"
)


class DisagreementError(ExecutionError):
    """Processes that go different ways; raised on all of them."""


@dataclass(frozen=True)
class ProcessGroup:
    """Those of a group of processes.

    Attributes:
        name: of the group.
        rank: which of them this is.
        device: where the model lies.
    """

    name: str
    rank: int
    device: torch.device

    @staticmethod
    def of(model: nn.Module) -> ProcessGroup | None:
        """The processes that hold a model together, or None if this one has all of it.

        Raises:
            CaptureError: as `shard_groups`.
        """
        groups = shard_groups(model)
        if not groups:
            return None
        return ProcessGroup(groups[0].processes, groups[0].rank, next(model.parameters()).device)

    def told(self, what: int, content: Any) -> list[Any]:
        """What each process tells, in the order of their ranks.

        Args:
            what: what this process is about to do, one of the numbers above.
            content: what it tells, for JSON.

        Raises:
            DisagreementError: on every process, if they are about to do different things.
        """
        text = json.dumps(content).encode()
        lengths = self.numbers(what, len(text))
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        texts = self._gathered(padded.to(self.device)).cpu().numpy()
        return [json.loads(row[:length].tobytes()) for row, length in zip(texts, lengths, strict=True)]

    def numbers(self, what: int, number: int) -> list[int]:
        """The same for one number of each process, in a single collective."""
        told = self._gathered(torch.tensor([what, number], device=self.device)).tolist()
        if any(other != what for other, _ in told):
            raise DisagreementError(f"{self._in_words([_DOES[other] for other, _ in told])}. {_ALIKE}")
        return [number for _, number in told]

    def require_same(self, contents: Sequence[Any], differing: str) -> None:
        """Refuse what differs, on every process.

        Args:
            contents: of each process.
            differing: what it is, in words.

        Raises:
            DisagreementError: if not all are equal.
        """
        if any(content != contents[0] for content in contents):
            others = [rank for rank, content in enumerate(contents) if content != contents[0]]
            raise DisagreementError(f"process {others[0]} has {differing} than process 0. {_ALIKE}")

    def _in_words(self, does: Sequence[str]) -> str:
        other = next(rank for rank, deed in enumerate(does) if deed != does[0])
        return f"process 0 {does[0]}, while process {other} {does[other]}"

    def _gathered(self, mine: torch.Tensor) -> torch.Tensor:
        from torch import distributed  # it has been imported, since the model is sharded

        group: Any = distributed.distributed_c10d._resolve_process_group(self.name)  # type: ignore[arg-type]
        rows = [torch.empty_like(mine) for _ in range(group.size())]
        distributed.all_gather(rows, mine, group=group)
        return torch.stack(rows)
