"""A multilayer perceptron for 28 x 28 images, the smallest model of the zoo."""

from __future__ import annotations

import itertools

from torch import nn

from remat_explorer.models.entry import Entry
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import label_vectors

INPUTS, CLASSES = 784, 10


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


ENTRIES = {"mlp": Entry(lambda size: mlp(), SizeRule(Size(128)), label_vectors(INPUTS, CLASSES))}
