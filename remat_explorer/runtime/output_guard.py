"""Outputs that a person may write to, and the backward pass that still reads their memory.

Plain PyTorch lets an output be changed in place, such as a loss that is divided before ``backward``, unless its
backward pass reads it. A plan may read more: it computes what it did not keep again from what it kept, and that may be
an output. Such an output is copied where there is room.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture import Program
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.copies import AnyPlan
from remat_explorer.runtime.strided_gradients import share_memory

SMALL = 4096  # bytes of an output that is copied though the plan has no room for it
_HARDTANH = torch.ops.aten.hardtanh_backward.default  # reads the result here, and the input in plain PyTorch


class OutputReads:
    """What a plan's backward pass reads of what the forward pass made."""

    def __init__(self, plan: AnyPlan, program: Program, split: int) -> None:
        self._plan, self._program, self._split = plan, program, split

    @cached_property
    def room(self) -> int:
        """Bytes that can be added to the backward pass without going beyond the plan's peak."""
        during = self._plan.timeline.during[self._split :]
        return self._plan.peak - int(during.max()) if len(during) else 0

    @cached_property
    def read_by_autograd(self) -> frozenset[Node]:
        """The nodes that plain PyTorch's backward pass reads, too."""
        graph, program = self._plan.graph, self._program
        reads: set[Node] = set()
        for operation, body in zip(graph.operations, program.bodies, strict=True):
            if operation.phase == "backward":
                carriers = {program.carriers[value] for value in operation.implementations[0].inputs}
                others = {n for call in body.calls if call.target is not _HARDTANH for n in call.sources}
                only_hardtanh = {n for call in body.calls for n in call.sources} - others
                reads |= carriers - only_hardtanh
        return frozenset(reads)


class OutputGuard:
    """The outputs of one forward pass, as they were when it ended.

    ``saved`` are the tensors of ``nodes``, which the forward pass left in memory for the backward pass, and are changed
    in place: copies take the place of what might be written to.
    """

    def __init__(
        self, tensors: Sequence[torch.Tensor], reads: OutputReads, nodes: Sequence[Node], saved: list[Any]
    ) -> None:
        self._tensors, self._reads = tensors, reads
        self._versions = [tensor._version for tensor in tensors]
        self._sources: list[set[Node]] = [set() for _ in tensors]
        room = reads.room
        for place, node in sorted(enumerate(nodes), key=lambda entry: _bytes(saved[entry[0]])):
            numbers = [number for number, tensor in enumerate(tensors) if share_memory(tensor, saved[place])]
            if not numbers:
                continue
            size = _bytes(saved[place])
            if node not in reads.read_by_autograd and (size <= SMALL or size <= room):
                saved[place] = saved[place].clone()
                room -= size
                continue
            for number in numbers:
                self._sources[number].add(node)

    def require_unchanged(self, read: Collection[Node]) -> None:
        """Refuse to go on if an output was written to whose memory is read, with the number of the output."""
        for number, tensor in enumerate(self._tensors):
            sources = self._sources[number].intersection(read)
            if not sources or tensor._version == self._versions[number]:
                continue
            why = (
                "which reads it, here as in plain PyTorch"
                if sources & self._reads.read_by_autograd
                else "and this plan computes again from it what it did not keep"
            )
            raise ExecutionError(
                f"output {number} was written to in place before its backward pass, {why}; use the operation that is "
                "not in place, or write to a clone of the output"
            )


def _bytes(tensor: Any) -> int:
    return tensor.untyped_storage().nbytes() if isinstance(tensor, torch.Tensor) else 0
