"""A multilayer perceptron whose hidden features never exist as a whole: some tokens, or some features, at a time.

Each hidden tensor is a product of tokens and weights, or made entry by entry of such ones, so that any part of its
rows or columns can be had from a part of the factors. The forward pass takes a few rows at a time. The backward pass
takes a few columns at a time: each belongs to a row or column of the weight gradients, and adds to the input gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch.utils import _pytree as pytree

from remat_explorer.capture.alternatives.kernels.flat import chunks

EVERYTHING = slice(None)
Hidden = dict[int, torch.Tensor]
Given = Sequence[torch.Tensor]


@dataclass(frozen=True)
class HiddenPlace:
    """Stands for a hidden tensor among the arguments of a call, by its number."""

    number: int


@dataclass(frozen=True)
class Product:
    """Hidden tensor ``made``: rows of tokens times columns of weights, and a bias; given tensors by their places."""

    made: int
    tokens: int
    weight: int
    bias: int | None = None

    def part(self, given: Given, rows: slice, columns: slice) -> torch.Tensor:
        """These rows and columns of it."""
        factors = given[self.tokens][rows], given[self.weight][:, columns]
        if self.bias is None:
            return torch.mm(*factors)
        return torch.addmm(given[self.bias][columns], *factors)


@dataclass(frozen=True)
class Entrywise:
    """Hidden tensor ``made`` by a call that treats each entry for itself, of others: see `HiddenPlace`."""

    made: int
    target: Callable[..., torch.Tensor]
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...] = ()

    def part(self, hidden: Hidden) -> torch.Tensor:
        """What it makes of these parts."""
        arguments = pytree.tree_map_only(HiddenPlace, lambda place: hidden[place.number], self.arguments)
        return self.target(*arguments, **dict(self.keywords))


@dataclass(frozen=True)
class TokenResult:
    """Result: a hidden tensor times weights, and a bias; a row for each token."""

    hidden: int
    weight: int
    bias: int | None = None

    def add(self, result: torch.Tensor, hidden: Hidden, given: Given, rows: slice, columns: slice) -> None:
        """Write these rows, or add to all of them what these columns give."""
        factors = hidden[self.hidden], given[self.weight][columns]
        if columns.start:
            result.addmm_(*factors)
        elif self.bias is None:
            torch.mm(*factors, out=result[rows])
        else:
            torch.addmm(given[self.bias], *factors, out=result[rows])


@dataclass(frozen=True)
class WeightGradient:
    """Result: a hidden tensor times a given one, along the tokens.

    Attributes:
        turned: whether the given tensor has a column for each token, and is the first factor.
    """

    hidden: int
    tokens: int
    turned: bool

    def add(self, result: torch.Tensor, hidden: Hidden, given: Given, rows: slice, columns: slice) -> None:
        """Write what belongs to these columns."""
        features, tokens = hidden[self.hidden], given[self.tokens]
        if self.turned:
            torch.mm(tokens, features, out=result[:, columns])
        else:
            torch.mm(features.t(), tokens, out=result[columns])


@dataclass(frozen=True)
class BiasGradient:
    """Result: the sum of a hidden tensor along its rows, of shape (1, features)."""

    hidden: int

    def add(self, result: torch.Tensor, hidden: Hidden, given: Given, rows: slice, columns: slice) -> None:
        """Write what belongs to these columns."""
        torch.sum(hidden[self.hidden], 0, keepdim=True, out=result[:, columns])


HiddenStep = Product | Entrywise
ResultStep = TokenResult | WeightGradient | BiasGradient


@dataclass(frozen=True)
class Perceptron:
    """How results come from tokens and weights.

    Attributes:
        features: columns of its hidden tensors.
        steps: hidden tensors and results, in order.
        results: shape and type of each result, in order.
        last: for each step the hidden tensors that no later one reads.
    """

    features: int
    steps: tuple[HiddenStep | ResultStep, ...]
    results: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    last: tuple[tuple[int, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        reader = {number: place for place, step in enumerate(self.steps) for number in reads_of(step)}
        last = [tuple(n for n, reading in reader.items() if reading == place) for place in range(len(self.steps))]
        object.__setattr__(self, "last", tuple(last))

    @property
    def most_alive(self) -> int:
        """How many hidden tensors exist at a time."""
        alive = most = 0
        for step, last in zip(self.steps, self.last, strict=True):
            alive += isinstance(step, HiddenStep)
            most, alive = max(most, alive), alive - len(last)
        return most

    def add(self, results: Sequence[torch.Tensor], given: Given, rows: slice, columns: slice) -> None:
        """Compute hidden tensors for these rows and columns, and what they contribute to the results."""
        hidden: Hidden = {}
        remaining = iter(results)
        for step, last in zip(self.steps, self.last, strict=True):
            if isinstance(step, Product):
                hidden[step.made] = step.part(given, rows, columns)
            elif isinstance(step, Entrywise):
                hidden[step.made] = step.part(hidden)
            else:
                step.add(next(remaining), hidden, given, rows, columns)
            for number in last:
                del hidden[number]


def reads_of(step: HiddenStep | ResultStep) -> list[int]:
    """Numbers of the hidden tensors that a step reads."""
    if isinstance(step, Product):
        return []
    if isinstance(step, Entrywise):
        return [place.number for place in pytree.tree_leaves(step.arguments) if isinstance(place, HiddenPlace)]
    return [step.hidden]


@dataclass(frozen=True)
class SomeTokens:
    """Computes the only result of a perceptron, ``rows`` tokens at a time.

    >>> steps = Product(0, 0, 1), Entrywise(1, torch.relu, (HiddenPlace(0),)), TokenResult(1, 2)
    >>> x, first, second = torch.tensor([[1.0], [-1.0], [2.0]]), torch.ones(1, 4), torch.ones(4, 1)
    >>> SomeTokens(Perceptron(4, steps, (((3, 1), x.dtype),)), rows=2)(x, first, second).tolist()
    [[4.0], [0.0], [8.0]]
    """

    perceptron: Perceptron
    rows: int
    __name__: ClassVar[str] = "perceptron_of_some_tokens"  # in generated code

    def __call__(self, *given: torch.Tensor) -> torch.Tensor:
        ((shape, dtype),) = self.perceptron.results
        result = given[0].new_empty(shape, dtype=dtype)
        for part in chunks(shape[0], self.rows):
            self.perceptron.add([result], given, part, EVERYTHING)
        return result


@dataclass(frozen=True)
class SomeFeatures:
    """Computes every result of a perceptron, ``columns`` hidden features at a time."""

    perceptron: Perceptron
    columns: int
    __name__: ClassVar[str] = "perceptron_of_some_features"

    def __call__(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = tuple(given[0].new_empty(shape, dtype=dtype) for shape, dtype in self.perceptron.results)
        for part in chunks(self.perceptron.features, self.columns):
            self.perceptron.add(results, given, EVERYTHING, part)
        return results


def passed_on(result: torch.Tensor) -> torch.Tensor:
    """The same tensor: what another operation has made already."""
    return result
