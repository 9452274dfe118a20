"""What a model is trained for: inputs with labels, and the loss of an output against the labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from remat_explorer.models.sizes import Size

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Task:
    """Inputs with labels, and the loss.

    Attributes:
        make: random inputs and labels of a size, on the CPU; where a model takes several inputs, a tuple of them.
        loss: from the model's output and the labels to a scalar tensor.

    >>> x, y = label_images(10).make(Size(2, (8, 8)), torch.Generator())
    >>> x.shape, y.shape
    (torch.Size([2, 3, 8, 8]), torch.Size([2]))
    """

    make: Callable[[Size, torch.Generator], tuple[Any, torch.Tensor]]
    loss: Loss = functional.cross_entropy


def label_vectors(features: int, classes: int) -> Task:
    """One of ``classes`` for each vector; inputs of shape (batch, features)."""

    def make(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(size.batch, features, generator=generator)
        return x, torch.randint(classes, (size.batch,), generator=generator)

    return Task(make)


def label_images(classes: int) -> Task:
    """One of ``classes`` for each image; inputs of shape (batch, 3, height, width)."""

    def make(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        return _images(size, generator), torch.randint(classes, (size.batch,), generator=generator)

    return Task(make)


def label_pixels(classes: int, side: Callable[[int], int]) -> Task:
    """One of ``classes`` for each pixel of the output, whose ``side`` follows from the image's."""

    def make(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        x = _images(size, generator)
        return x, torch.randint(classes, (size.batch, side(x.shape[2]), side(x.shape[3])), generator=generator)

    return Task(make)


def mask_pixels() -> Task:
    """Inside or outside, for each pixel of the image: one output channel and its binary cross-entropy."""

    def make(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        x = _images(size, generator)
        return x, torch.randint(2, (size.batch, 1, *x.shape[2:]), generator=generator).float()

    return Task(make, functional.binary_cross_entropy_with_logits)


def predict_tokens(vocabulary: int) -> Task:
    """A token of the ``vocabulary`` at each position; inputs of shape (batch, sequence)."""

    def make(size: Size, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (size.batch, size.sequence or 0)
        tokens, labels = (torch.randint(vocabulary, shape, generator=generator) for _ in range(2))
        return tokens, labels

    return Task(make, _cross_entropy_of_all_positions)


def _images(size: Size, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(size.batch, 3, *size.image_sides, generator=generator)


def _cross_entropy_of_all_positions(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())  # in float32, whatever the model
