"""What a training loop sets up between `remat_explorer.rematerialize` and its first step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from remat_explorer.runtime.assumptions.inputs import paths_of
from remat_explorer.runtime.signature import Arguments, Layout, Signature, alike_but_for_sizes, same_leaf

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


@dataclass(frozen=True, eq=False)
class Example:
    """Inputs that were given before the first step, as large as they get.

    Attributes:
        signature, paths: of these inputs, and what each of them is called.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    signature: Signature
    paths: tuple[str, ...]

    @staticmethod
    def of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Example:
        """The example of a call."""
        return Example(args, kwargs, Signature.of(args, kwargs), tuple(paths_of(args, kwargs)))

    def in_the_loop(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
        """The inputs to plan for in a first step with these inputs: as large as the example's, as the loop has them.

        A loop may add inputs by name, leave some out, and pass a number in another type. None where the inputs differ
        in more than that and in sizes.

        >>> example = Example.of((torch.ones(4, 3),), {})
        >>> found = example.in_the_loop((torch.ones(2, 3),), {"num_items_in_batch": torch.tensor(3)})
        >>> [list(tensor.shape) for tensor in (*found[0], *found[1].values())]
        [[4, 3], []]
        """
        now = Signature.of(args, kwargs)
        then, leaves = self._by_path(), dict(zip(paths_of(args, kwargs), now.leaves, strict=True))
        alone = set(map(_input, then)) ^ set(map(_input, leaves))
        whole = all(_input(path) in alone and "'" in _input(path) for path in then.keys() ^ leaves.keys())
        pairs = [(then[path], leaves[path]) for path in then.keys() & leaves.keys()]
        others = [pair for pair in pairs if not all(map(_is_number, pair))]
        if not (whole and pairs and all(alike_but_for_sizes(*pair) for pair in others)):
            return None
        if all(same_leaf(*pair) for pair in others):
            return args, kwargs
        return self.args, {name: self._or(name, given) for name, given in kwargs.items()}

    def _or(self, name: str, given: Any) -> Any:
        is_number = isinstance(given, torch.Tensor) and given.dim() == 0
        return given if is_number else self.kwargs.get(name, given)

    def _by_path(self) -> dict[str, Any]:
        return dict(zip(self.paths, self.signature.leaves, strict=True))


def _is_number(layout: Any) -> bool:
    return isinstance(layout, Layout) and layout.shape == ()


def _input(path: str) -> str:
    """The input that a path leads into.

    >>> _input("input 'extra'['a'][1]"), _input("input 0.x")
    ("input 'extra'", 'input 0')
    """
    found = re.match(r"input (\d+|'\w+')", path)
    return found[0] if found else path
