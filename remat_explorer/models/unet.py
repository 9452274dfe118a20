"""U-Net, in the two variants that rematerialization papers used: an encoder, a decoder, and long skips between them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry
from remat_explorer.models.segnet import CITYSCAPES_CLASSES, padded_convolution
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import label_pixels, mask_pixels
from remat_explorer.models.vgg import CONVOLUTIONS_OF_16, vgg_blocks


class VGGUNet(nn.Module):
    """Checkmate's U-Net: the `vgg_unet` of image-segmentation-keras.

    The encoder is that of VGG16 without its fifth block, which nothing reads; skips are taken after pooling, so labels
    have half the sides of the image. The decoder repeats pixels and has no activation after its convolutions, as the
    library had it when Checkmate was written. Image sides are multiples of 16, since four poolings halve them.
    """

    def __init__(self, classes: int = CITYSCAPES_CLASSES) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(*layers) for layers in vgg_blocks(CONVOLUTIONS_OF_16[:4]))
        self.bottom = nn.Sequential(*padded_convolution(512, 512))
        levels = ((512 + 256, 256), (256 + 128, 128), (128 + 64, 64))
        self.merge = nn.ModuleList(nn.Sequential(*padded_convolution(*level)) for level in levels)
        self.head = nn.Conv2d(64, classes, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped: list[torch.Tensor] = []
        for block in self.blocks:
            x = block(x)
            skipped.append(x)
        x = self.bottom(skipped.pop())
        for merge in self.merge:
            x = merge(torch.cat([functional.interpolate(x, scale_factor=2), skipped.pop()], 1))
        return self.head(x)


class UNet(nn.Module):
    """MONeT's U-Net: Ronneberger, Fischer and Brox, MICCAI 2015, figure 1, as in its repository utsaslab/MONeT.

    Convolutions are padded and normalized; the deepest level has 512 channels instead of 1024, and pixels are repeated
    on the way up. MONeT repeats them by an adaptive average pooling to twice the sides, whose backward reads its
    input again, so that operation is kept here. Image sides are multiples of 16.
    """

    def __init__(self) -> None:
        super().__init__()
        downs = ((3, 64), (64, 128), (128, 256), (256, 512), (512, 512))
        self.down = nn.ModuleList(_two_convolutions(before, after, after) for before, after in downs)
        ups = ((1024, 512, 256), (512, 256, 128), (256, 128, 64), (128, 64, 64))
        self.merge = nn.ModuleList(_two_convolutions(*widths) for widths in ups)
        self.head = nn.Conv2d(64, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skipped: list[torch.Tensor] = []
        for level, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if level else x)
            skipped.append(x)
        skipped.pop()
        for merge in self.merge:
            skip = skipped.pop()
            larger = functional.adaptive_avg_pool2d(x, (skip.shape[2], skip.shape[3]))
            x = merge(torch.cat([skip, larger], 1))
        return self.head(x)


def _two_convolutions(before: int, between: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, between, 3, padding=1),
        nn.BatchNorm2d(between),
        nn.ReLU(inplace=True),
        nn.Conv2d(between, after, 3, padding=1),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    )


ENTRIES = {
    "unet": Entry(
        lambda size: VGGUNet(),
        SizeRule(Size(32, image=(416, 608)), smallest=32, multiple=16),  # Checkmate, MLSys 2020, figure 5
        label_pixels(CITYSCAPES_CLASSES, lambda side: side // 2),
    ),
    "unet_monet": Entry(
        lambda size: UNet(),
        SizeRule(Size(11, image=(416, 608)), smallest=32, multiple=16),  # MONeT, ICLR 2021, section 5
        mask_pixels(),
    ),
}
