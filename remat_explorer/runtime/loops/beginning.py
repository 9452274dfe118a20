"""What a training loop sets up between `remat_explorer.rematerialize` and its first step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from remat_explorer.runtime.signature import Layout, Signature, same_leaf

COUNTS = ("num_items_in_batch",)


def with_counts_as_tensors(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs by name, with a tensor in place of a number that loops count anew for every step.

    A number would be a constant of the plan. ``num_items_in_batch`` is how many labels the loss of a transformers
    model is divided by; some versions of its Trainer pass a number, others a tensor.

    >>> with_counts_as_tensors({"num_items_in_batch": 30, "use_cache": False})
    {'num_items_in_batch': tensor(30), 'use_cache': False}
    """
    if not any(type(kwargs.get(name)) is int for name in COUNTS):
        return kwargs
    return {n: torch.tensor(given) if n in COUNTS and type(given) is int else given for n, given in kwargs.items()}


def brought_by_the_loop(planned: Signature, paths: Sequence[str], now: Signature, paths_now: Sequence[str]) -> bool:
    """Whether the inputs of a first step are those that were given before, but for some by name, added or left out.

    Args:
        planned, paths: of the inputs that a plan was made for, and what each of them is called.
        now, paths_now: of those of the step.

    >>> x, count = torch.ones(2, 3), torch.tensor(3)
    >>> before, first = Signature.of((x,), {}), Signature.of((x,), {"num_items_in_batch": count})
    >>> brought_by_the_loop(before, ["input 0"], first, ["input 0", "input 'num_items_in_batch'"])
    True
    """
    then, leaves = dict(zip(paths, planned.leaves, strict=True)), dict(zip(paths_now, now.leaves, strict=True))
    inputs, inputs_now = set(map(_input, then)), set(map(_input, leaves))
    alone = inputs ^ inputs_now
    whole = all(_input(path) in alone and "'" in _input(path) for path in then.keys() ^ leaves.keys())
    both = then.keys() & leaves.keys()
    return whole and bool(both) and all(same_leaf(then[p], leaves[p]) or _is_number(then[p], leaves[p]) for p in both)


def _input(path: str) -> str:
    """The input that a path leads into.

    >>> _input("input 'extra'['a'][1]"), _input("input 0.x")
    ("input 'extra'", 'input 0')
    """
    found = re.match(r"input (\d+|'\w+')", path)
    return found[0] if found else path


def _is_number(*layouts: Any) -> bool:
    return all(isinstance(layout, Layout) and layout.shape == () for layout in layouts)
