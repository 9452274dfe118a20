"""`torch.utils.checkpoint.checkpoint_sequential`: the chain of a model cut into segments of as many layers."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

from remat_explorer.runtime.peers.forwards import replaced_forwards


def trunk_of(model: nn.Module) -> nn.Sequential | None:
    """The sequence that makes up most of a model: of those in no other one, the one with the most layers within.

    >>> head, body = nn.Sequential(nn.Linear(4, 2)), nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    >>> trunk_of(nn.ModuleDict({"head": head, "body": body})) is body
    True
    """
    sequences = [module for module in _outermost(model) if len(module) > 1]
    return max(sequences, key=_layers, default=None)


def segment_counts(members: int) -> tuple[int, ...]:
    """How often to cut: in two, into about √n segments of √n members (Chen et al., 2016), and after each member.

    >>> segment_counts(31), segment_counts(4), segment_counts(2)
    ((2, 6, 31), (2, 4), (2,))
    """
    return tuple(sorted({2, max(2, round(members**0.5)), members}))


def checkpointed_segments(trunk: nn.Sequential, segments: int) -> AbstractContextManager[None]:
    """While entered, ``trunk`` runs in segments, all but the last of which keep only their input."""
    members = list(trunk)  # as a list: a layer that comes twice is then run twice
    return replaced_forwards({trunk: functools.partial(checkpoint_sequential, members, segments, use_reentrant=False)})


def _outermost(model: nn.Module) -> list[nn.Sequential]:
    if isinstance(model, nn.Sequential):
        return [model]
    return [sequence for child in model.children() for sequence in _outermost(child)]


def _layers(module: nn.Module) -> int:
    return sum(not any(True for _ in part.children()) for part in module.modules())
