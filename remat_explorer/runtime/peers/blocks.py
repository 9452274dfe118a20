"""`torch.utils.checkpoint` around each block: what the authors of most large models build in by hand."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from remat_explorer.runtime.peers.forwards import Forward, replaced_forwards


def blocks_of(model: nn.Module) -> tuple[nn.Module, ...]:
    """The repeated blocks of a model: residual blocks, transformer layers, dense layers.

    A block is a member of an `nn.ModuleList` or `nn.Sequential` with parameters and children. Blocks of one class
    belong together wherever they are; plain sequences do if they are members of the same container. Of all such
    groups it is the largest, and of equally large ones the outermost.

    >>> def block():
    ...     return nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    >>> [len(blocks_of(model)) for model in (nn.Sequential(block(), block(), nn.ReLU()), block())]
    [2, 0]
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


def checkpointed_blocks(blocks: Sequence[nn.Module]) -> AbstractContextManager[None]:
    """While entered, each block keeps only its inputs, and runs again in the backward pass."""
    return replaced_forwards({block: functools.partial(_checkpointed, block.forward) for block in blocks})


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
