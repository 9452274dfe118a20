"""One model of the zoo: how it is built, what it is trained for, and at which sizes.

`Entry` is one model, `SizeRule` says which sizes it takes, and `Task` gives its inputs, labels and loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.errors import ModelError

Pixels = int | tuple[int, int]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Size:
    """Size of a batch, and what may be chosen of the model.

    Attributes:
        batch: examples in it.
        image: height and width in pixels, or None where inputs are no images.
        sequence: tokens of an example, or None where inputs are no sequences.
        layers: blocks of the model, or None where it has as many as it has.
        tied: whether the embedding of the tokens is also the last layer's weight; None where that cannot be chosen.

    >>> print(Size(32, image=(416, 608)))
    batch 32, 416 x 608 pixels
    >>> print(Size(512, sequence=1024))
    batch 512, 1024 tokens
    >>> print(Size(1, sequence=8192, layers=32, tied=False))
    batch 1, 8192 tokens, 32 layers
    >>> print(Size(1, layers=1))
    batch 1, 1 layer
    """

    batch: int
    image: tuple[int, int] | None = None
    sequence: int | None = None
    layers: int | None = None
    tied: bool | None = None

    def __str__(self) -> str:
        image = f", {self.image[0]} x {self.image[1]} pixels" if self.image else ""
        sequence = f", {self.sequence} tokens" if self.sequence else ""
        layers = f", {self.layers} layer{'s' * (self.layers > 1)}" if self.layers else ""
        return f"batch {self.batch}{image}{sequence}{layers}"

    @property
    def image_sides(self) -> tuple[int, int]:
        """Height and width, for a model of images.

        Raises:
            ModelError: if there is no image.
        """
        if self.image is None:
            raise ModelError(f"an image size is needed, but there is only: {self}")
        return self.image


@dataclass(frozen=True)
class SizeRule:
    """The published size of a model, and which others it takes."""

    published: Size  # a sequence is also the longest one, unless the model is endless
    smallest: int = 1  # least pixels of an image side
    multiple: int = 1  # what an image side must be a multiple of
    endless: bool = False  # no table of positions limits sequences

    def choose(
        self,
        name: str,
        batch: int | None,
        image: Pixels | None,
        sequence: int | None,
        layers: int | None = None,
        tied: bool | None = None,
    ) -> Size:
        """The asked size, with published numbers for None; a ModelError if it does not suit the model."""
        batch = self.published.batch if batch is None else batch
        if not _is_count(batch):
            raise ModelError(f"the batch of {name!r} is {batch!r}; give a whole number of at least 1")
        depth, head = self._layers(name, layers), self._tied(name, tied)
        return Size(batch, self._image(name, image), self._sequence(name, sequence), depth, head)

    def _layers(self, name: str, layers: int | None) -> int | None:
        if layers is None:
            return self.published.layers
        if self.published.layers is None:
            raise ModelError(f"the layers of {name!r} cannot be chosen, but {layers!r} were asked for; leave them out")
        if not _is_count(layers):
            raise ModelError(f"the layers of {name!r} are {layers!r}; give a whole number of at least 1")
        return layers

    def _tied(self, name: str, tied: bool | None) -> bool | None:
        if tied is not None and self.published.tied is None:
            raise ModelError(f"{name!r} has no head that may be tied or not, but tied={tied!r} was given; leave it out")
        return self.published.tied if tied is None else bool(tied)

    def _image(self, name: str, image: Pixels | None) -> tuple[int, int] | None:
        if self.published.image is None:
            if image is not None:
                raise ModelError(f"{name!r} takes no images, but the image size {image!r} was given; leave it out")
            return None
        sides = self.published.image if image is None else (image, image) if isinstance(image, int) else image
        whole = isinstance(sides, tuple | list) and len(sides) == 2 and all(map(_is_count, sides))
        if not whole or any(side < self.smallest or side % self.multiple for side in sides):
            rule = f"at least {self.smallest}" + (f", a multiple of {self.multiple}" if self.multiple > 1 else "")
            raise ModelError(f"the image size of {name!r} is {image!r}; give pixels, or (height, width), each {rule}")
        return sides[0], sides[1]

    def _sequence(self, name: str, sequence: int | None) -> int | None:
        longest = self.published.sequence
        if longest is None:
            if sequence is not None:
                raise ModelError(f"{name!r} takes no sequences, but {sequence!r} tokens were given; leave them out")
            return None
        sequence = longest if sequence is None else sequence
        if not _is_count(sequence) or (sequence > longest and not self.endless):
            which = "of at least 1" if self.endless else f"from 1 to {longest}, the positions that it knows"
            raise ModelError(f"the sequence of {name!r} is {sequence!r}; give a whole number of tokens {which}")
        return sequence


def _is_count(number: Any) -> bool:
    return type(number) is int and number >= 1


@dataclass(frozen=True)
class Task:
    """Inputs with labels, and the loss."""

    make: Callable[[Size, torch.Generator], tuple[Any, torch.Tensor]]  # on the CPU; several inputs are a tuple
    loss: Loss = functional.cross_entropy  # of output and labels


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


@dataclass(frozen=True)
class Entry:
    """One model.

    Attributes:
        build: the module without its loss; some layers depend on the size.
        sizes: its published size, and which others it takes.
        task: its inputs, labels and loss.
    """

    build: Callable[[Size], nn.Module]
    sizes: SizeRule
    task: Task
