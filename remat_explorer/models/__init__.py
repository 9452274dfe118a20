"""The model zoo: plain torch, random weights, each with the batch and image size of its paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from remat_explorer.capture.placement import torch_device
from remat_explorer.errors import ModelError, UnknownNameError
from remat_explorer.models.loaded import LoadedModel, Size, WithLoss
from remat_explorer.models.mlp import mlp
from remat_explorer.models.residual_net import ResidualNet
from remat_explorer.models.unet import UNet
from remat_explorer.models.vgg import VGG16

__all__ = ["LoadedModel", "load", "names", "published_size"]
SEED = 0


@dataclass(frozen=True)
class _Entry:
    """One family: how to build it, its published sizes, and what an image side must be a multiple of."""

    build: Callable[[tuple[int, int]], nn.Module]
    batch: int
    image: tuple[int, int] | None
    classes: int
    multiple: int = 1
    smallest: int = 1
    per_pixel: bool = False


_ZOO = {
    "mlp": _Entry(lambda image: mlp(), 128, None, 10),
    # batch 256, 224 pixels: Simonyan and Zisserman, ICLR 2015, section 3.1
    "vgg16": _Entry(lambda image: VGG16(image), 256, (224, 224), 1000, smallest=32),
    # batch and image as in Checkmate (Jain et al., MLSys 2020), section 6.2
    "unet": _Entry(lambda image: UNet(), 32, (416, 608), 2, multiple=16, smallest=64, per_pixel=True),
    # batch 128, 32 pixels: He et al., CVPR 2016, section 4.2
    "residual_net": _Entry(lambda image: ResidualNet(), 128, (32, 32), 10, smallest=8),
}


def names() -> tuple[str, ...]:
    """Names of the models, in alphabetical order.

    >>> names()
    ('mlp', 'residual_net', 'unet', 'vgg16')
    """
    return tuple(sorted(_ZOO))


def published_size(name: str) -> tuple[int, tuple[int, int] | None]:
    """Batch and image size (height and width in pixels, or None) that `load` takes by itself.

    Raises:
        UnknownNameError: if there is no such model.

    >>> published_size("unet")
    (32, (416, 608))
    """
    if name not in _ZOO:
        raise UnknownNameError("model", name, _ZOO)
    return _ZOO[name].batch, _ZOO[name].image


def load(name: str, batch: int | None = None, image: Size | None = None, device: str = "cpu") -> LoadedModel:
    """A model of the zoo, with inputs.

    Args:
        name: one of `names`.
        batch: examples in a batch, at least 1; None for the published number.
        image: pixels, one number or (height, width); None for the published size.
        device: where weights and inputs lie: "cpu", "cuda", or "auto" for CUDA where there is one.

    Raises:
        UnknownNameError: if there is no such model.
        ModelError: if the batch or image size does not suit the model.
        ExecutionError: if there is no such device.

    >>> load("mlp", batch=4).graph.n
    34
    """
    if name not in _ZOO:
        raise UnknownNameError("model", name, _ZOO)
    entry = _ZOO[name]
    batch = entry.batch if batch is None else batch
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ModelError(f"the batch of {name!r} is {batch!r}; give a whole number of at least 1")
    size, target = _image_size(name, entry, image), torch_device(device)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(SEED)
        module = WithLoss(entry.build(size or (1, 1))).to(target).train()

    def make_args() -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(SEED)
        shape = (batch, 784) if size is None else (batch, 3, *size)
        labels = (batch, *size) if size and entry.per_pixel else (batch,)
        x = torch.randn(shape, generator=generator)
        return x.to(target), torch.randint(entry.classes, labels, generator=generator).to(target)

    return LoadedModel(name, module, batch, size, make_args)


def _image_size(name: str, entry: _Entry, image: Size | None) -> tuple[int, int] | None:
    if entry.image is None:
        if image is not None:
            raise ModelError(f"{name!r} takes no images, but the image size {image!r} was given; leave it out")
        return None
    sides = entry.image if image is None else (image, image) if isinstance(image, int) else image
    whole = isinstance(sides, tuple | list) and len(sides) == 2 and all(type(side) is int for side in sides)
    if not whole or any(side < entry.smallest or side % entry.multiple for side in sides):
        rule = f"at least {entry.smallest}" + (f", a multiple of {entry.multiple}" if entry.multiple > 1 else "")
        raise ModelError(f"the image size of {name!r} is {image!r}; give pixels, or (height, width), each {rule}")
    return sides[0], sides[1]
