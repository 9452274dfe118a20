"""Plain chains of equal layers, on which rematerialization is explained, and a small multilayer perceptron."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from remat_explorer.models.entry import Entry, Size, SizeRule, label_images, label_vectors

WIDTH = 256  # of the chain
INPUTS, CLASSES = 784, 10  # of the multilayer perceptron


def chain(layers: int = 16, width: int = WIDTH) -> nn.Sequential:
    """Linear layers with tanh, all of one width, the last one included.

    Every activation has the same bytes and every layer the same cost: the setting in which Griewank and Walther, TOMS
    2000, and Chen et al., arXiv 1604.06174, section 4, count recomputations.
    """
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)))


class LinearNetwork(nn.Module):
    """A deep network like that of Checkmate's figure 1: 32 layers, 30 GB in training to keep every activation.

    The paper (Jain et al., MLSys 2020) does not give the layers. These are the ones of "linear32" in its published
    code, 3 x 3 convolutions to 64 channels without bias or activation on 224 x 224 images, then pooling and 1000
    classes; but padded, so that all layers are equal. At the default batch keeping everything needs 30 GB.
    """

    def __init__(self, layers: int = 32, width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        widths = [3, *[width] * (layers - 1)]
        self.layers = nn.Sequential(*(nn.Conv2d(before, width, 3, padding=1, bias=False) for before in widths))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.layers(x)), 1))


def mlp(layers: int = 8, width: int = 512, inputs: int = INPUTS, classes: int = CLASSES) -> nn.Sequential:
    """Linear layers with ReLU in between.

    Source: the shape of the MNIST networks of LeCun et al., "Gradient-based learning applied to document
    recognition", 1998, section III, with equally wide hidden layers.
    """
    widths = [inputs] + [width] * (layers - 1)
    hidden = [
        module
        for before, after in itertools.pairwise(widths)
        for module in (nn.Linear(before, after), nn.ReLU(inplace=True))
    ]
    return nn.Sequential(*hidden, nn.Linear(widths[-1], classes))


ENTRIES = {
    "chain": Entry(
        lambda size: chain(),
        SizeRule(Size(4096)),  # an activation of 4 MiB, sixteen times the weights of its layer
        label_vectors(WIDTH, WIDTH),
    ),
    "linear32": Entry(
        lambda size: LinearNetwork(),
        SizeRule(Size(71, image=(224, 224))),
        label_images(1000),
    ),
    "mlp": Entry(lambda size: mlp(), SizeRule(Size(128)), label_vectors(INPUTS, CLASSES)),
}
