"""The processes that hold a sharded model together, and what they tell each other before they do something together.

A collective waits for every process, so one that goes another way, or fails alone, leaves the others waiting. What a
process is about to do is told first, and all of them refuse where it differs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from remat_explorer.capture.step.sharding import shard_groups
from remat_explorer.errors import ExecutionError

PROFILE, MEASURED, SOLUTION, STEP, FAILED = range(5)
_DOES = (
    "captures and profiles a step",
    "has profiled a step",
    "looks for a schedule",
    "begins a step",
    "has failed, and says why",
)
ALIKE = (
    "Collectives have to come in the same order on each: give every process inputs of the same sizes, such as with "
    "drop_last=True, and change models and modes on all of them alike"
)


class DisagreementError(ExecutionError):
    """Processes that go different ways; raised on all of them."""


@dataclass(frozen=True)
class Processes:
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
    def of(model: nn.Module) -> Processes | None:
        """The processes that hold a model together, or None if this one has all of it.

        Raises:
            CaptureError: as `shard_groups`.
        """
        groups = shard_groups(model)
        if not groups:
            return None
        return Processes(groups[0].processes, groups[0].rank, next(model.parameters()).device)

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
            raise DisagreementError(f"{self._in_words([_DOES[other] for other, _ in told])}. {ALIKE}")
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
            raise DisagreementError(f"process {others[0]} has {differing} than process 0. {ALIKE}")

    def _in_words(self, does: Sequence[str]) -> str:
        other = next(rank for rank, deed in enumerate(does) if deed != does[0])
        return f"process 0 {does[0]}, while process {other} {does[other]}"

    def _gathered(self, mine: torch.Tensor) -> torch.Tensor:
        from torch import distributed  # it has been imported, since the model is sharded

        group: Any = distributed.distributed_c10d._resolve_process_group(self.name)  # type: ignore[arg-type]
        rows = [torch.empty_like(mine) for _ in range(group.size())]
        distributed.all_gather(rows, mine, group=group)
        return torch.stack(rows)
