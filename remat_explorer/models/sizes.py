"""How large an example is, how many are in a batch, and which sizes a model takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remat_explorer.errors import ModelError

Pixels = int | tuple[int, int]


@dataclass(frozen=True)
class Size:
    """Size of a batch.

    Attributes:
        batch: examples in it.
        image: height and width in pixels, or None where inputs are no images.
        sequence: tokens of an example, or None where inputs are no sequences.

    >>> print(Size(32, image=(416, 608)))
    batch 32, 416 x 608 pixels
    >>> print(Size(512, sequence=1024))
    batch 512, 1024 tokens
    """

    batch: int
    image: tuple[int, int] | None = None
    sequence: int | None = None

    def __str__(self) -> str:
        image = f", {self.image[0]} x {self.image[1]} pixels" if self.image else ""
        sequence = f", {self.sequence} tokens" if self.sequence else ""
        return f"batch {self.batch}{image}{sequence}"

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
    """The published size of a model, and which others it takes.

    Attributes:
        published: the size of its paper; it tells whether the model takes images or sequences. A published sequence is
            also the longest one: it fills the model's table of positions.
        smallest: least pixels of an image side.
        multiple: what an image side must be a multiple of.
    """

    published: Size
    smallest: int = 1
    multiple: int = 1

    def choose(self, name: str, batch: int | None, image: Pixels | None, sequence: int | None) -> Size:
        """The asked size, with published numbers for None.

        Raises:
            ModelError: if the size does not suit the model called ``name``.

        >>> SizeRule(Size(32, image=(416, 608)), multiple=16).choose("unet", 4, None, None)
        Size(batch=4, image=(416, 608), sequence=None)
        """
        batch = self.published.batch if batch is None else batch
        if not _is_count(batch):
            raise ModelError(f"the batch of {name!r} is {batch!r}; give a whole number of at least 1")
        return Size(batch, self._image(name, image), self._sequence(name, sequence))

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
        if not _is_count(sequence) or sequence > longest:
            raise ModelError(
                f"the sequence of {name!r} is {sequence!r}; give a whole number of tokens from 1 to {longest}, "
                "the positions that it knows"
            )
        return sequence


def _is_count(number: Any) -> bool:
    return type(number) is int and number >= 1
