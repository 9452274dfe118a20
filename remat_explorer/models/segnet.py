"""SegNet as Checkmate evaluated it: an encoder and a decoder without skip connections."""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.entry import Entry
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import label_pixels

CITYSCAPES_CLASSES = 19  # Checkmate's choice in its published code


def padded_convolution(before: int, after: int) -> list[nn.Module]:
    """Zero padding as a layer of its own, a 3 x 3 convolution, and normalization.

    The padded copy takes memory: Keras stores it, and so do the graphs of Checkmate's evaluation.
    """
    return [nn.ZeroPad2d(1), nn.Conv2d(before, after, 3), nn.BatchNorm2d(after)]


class SegNet(nn.Module):
    """The `segnet` of image-segmentation-keras, which Checkmate used.

    The idea is that of Badrinarayanan et al., "SegNet", PAMI 2017, but the decoder repeats pixels instead of using the
    pooling indices, and labels have half the sides of the image. The encoder's fifth block is left out: nothing
    reads it. Image sides are multiples of 16, since four poolings halve them.
    """

    def __init__(self, classes: int = CITYSCAPES_CLASSES) -> None:
        super().__init__()
        encoder: list[nn.Module] = []
        for before, after in ((3, 64), (64, 128), (128, 256), (256, 256)):
            encoder += [*padded_convolution(before, after), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        decoder = padded_convolution(256, 512)
        for before, after in ((512, 256), (256, 128), (128, 64)):
            decoder += [nn.Upsample(scale_factor=2), *padded_convolution(before, after)]
        self.encoder = nn.Sequential(*encoder)
        self.decoder = nn.Sequential(*decoder)
        self.head = nn.Conv2d(64, classes, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.decoder(self.encoder(x)))


ENTRIES = {
    "segnet": Entry(
        lambda size: SegNet(),
        # image: Checkmate (Jain et al., MLSys 2020), section 6.4; batch 12: SegNet's paper, section 3.2
        SizeRule(Size(12, image=(416, 608)), smallest=32, multiple=16),
        label_pixels(CITYSCAPES_CLASSES, lambda side: side // 2),
    )
}
