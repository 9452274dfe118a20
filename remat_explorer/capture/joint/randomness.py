"""Which calls draw random numbers: those must be repeated from the same generator state, and are never shared."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Node

from remat_explorer.capture.step.gates import written_in_layout


def is_random(nodes: Iterable[Node]) -> bool:
    """Whether a call among ``nodes`` draws from the random number generator."""
    return any(_draws(node) for node in nodes)


@functools.cache
def state_bytes(kind: str) -> int:
    """Bytes of the tensor in which PyTorch hands out the state of a generator, each time that it is asked for.

    It is there for a moment before an operation that draws runs, or runs again. On CUDA a state is two numbers.

    >>> state_bytes("cuda"), state_bytes("cpu") > 0
    (0, True)
    """
    return 0 if kind == "cuda" else torch.get_rng_state().nbytes


def _draws(node: Node) -> bool:
    target: Any = node.args[0] if node.target is written_in_layout else node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":  # attention draws only if it drops something
            given = node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", argument.default_value)
            return bool(given)
    return True
