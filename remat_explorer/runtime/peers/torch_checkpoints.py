"""PyTorch's own checkpoints on a model: `checkpoint_sequential` on its chain, `checkpoint` around each of its blocks.

The second is what the authors of most large models build in by hand.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def blocks_of(model: nn.Module) -> tuple[nn.Module, ...]:
    """The repeated blocks of a model: residual blocks, transformer layers, dense layers.

    A block is a member of an `nn.ModuleList` or `nn.Sequential` with parameters and children. Blocks of one class
    belong together wherever they are; plain sequences do if they are members of the same container. Of all such groups
    it is the largest, and of equally large ones the outermost.
    """
    groups: dict[object, dict[nn.Module, None]] = {}
    for container in model.modules():
        if isinstance(container, nn.ModuleList | nn.Sequential):
            for member in filter(_is_composite, container):
                kind = (type(member), container if isinstance(member, nn.Sequential) else None)
                groups.setdefault(kind, {})[member] = None
    candidates = [_without_inner(tuple(group)) for group in groups.values()]
    largest = max(candidates, key=len, default=())
    return largest if len(largest) > 1 else ()


def checkpoint_blocks(blocks: Sequence[nn.Module]) -> AbstractContextManager[None]:
    """While entered, each block keeps only its inputs, and runs again in the backward pass."""
    return replace_forwards({block: functools.partial(_checkpointed, block.forward) for block in blocks})


Forward = Callable[..., Any]


@contextlib.contextmanager
def replace_forwards(forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Call the given functions in place of the modules' own ``forward``; hooks stay as they are."""
    before = {module: module.__dict__["forward"] for module in forwards if "forward" in module.__dict__}
    try:
        for module, forward in forwards.items():
            module.__dict__["forward"] = forward
        yield
    finally:
        for module in forwards:
            module.__dict__.pop("forward", None)
            if module in before:
                module.__dict__["forward"] = before[module]


def _checkpointed(forward: Forward, *args: Any, **kwargs: Any) -> Any:
    """Run a block under a checkpoint, with containers of its own: a list of features may grow until it runs again."""
    args, kwargs = pytree.tree_map(lambda leaf: leaf, (args, kwargs))
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=True, **kwargs)


def _is_composite(module: nn.Module) -> bool:
    parametric = any(True for _ in module.parameters())
    return parametric and any(True for _ in module.children()) and not isinstance(module, nn.ModuleList)


def _without_inner(group: tuple[nn.Module, ...]) -> tuple[nn.Module, ...]:
    """Without the modules that are part of another one of the group."""
    inner = {part for module in group for part in module.modules() if part is not module}
    return tuple(module for module in group if module not in inner)


def largest_sequential(model: nn.Module) -> nn.Sequential | None:
    """The sequence that makes up most of a model: of those in no other one, the one with the most layers within."""
    sequences = [module for module in _outermost_sequences(model) if len(module) > 1]
    return max(sequences, key=_layer_count, default=None)


def segment_counts(members: int) -> tuple[int, ...]:
    """How often to cut: in two, into about √n segments of √n members (Chen et al., 2016), and after each member.

    >>> segment_counts(31), segment_counts(4), segment_counts(2)
    ((2, 6, 31), (2, 4), (2,))
    """
    return tuple(sorted({2, max(2, round(members**0.5)), members}))


def checkpoint_segments(trunk: nn.Sequential, segments: int) -> AbstractContextManager[None]:
    """While entered, ``trunk`` runs in segments, all but the last of which keep only their input."""
    members = list(trunk)  # as a list: a layer that comes twice is then run twice
    return replace_forwards({trunk: functools.partial(checkpoint_sequential, members, segments, use_reentrant=False)})


def _outermost_sequences(model: nn.Module) -> list[nn.Sequential]:
    if isinstance(model, nn.Sequential):
        return [model]
    return [sequence for child in model.children() for sequence in _outermost_sequences(child)]


def _layer_count(module: nn.Module) -> int:
    return sum(not any(True for _ in part.children()) for part in module.modules())
