"""FCN-8s as Checkmate evaluated it: a VGG encoder, and labels from three of its levels."""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.entry import Entry
from remat_explorer.models.segnet import CITYSCAPES_CLASSES
from remat_explorer.models.sizes import Size, SizeRule
from remat_explorer.models.tasks import label_pixels
from remat_explorer.models.vgg import CONVOLUTIONS_OF_16, vgg_blocks


class FCN8(nn.Module):
    """The `fcn_8_vgg` of image-segmentation-keras, which Checkmate used.

    The idea is that of Long, Shelhamer and Darrell, CVPR 2015, figure 3. Coarser scores are up-sampled by transposed
    convolutions and cropped to the finer ones; after the last there is no cropping, so labels have 8 pixels more than
    the image in each direction. Image sides are multiples of 32, since five poolings halve them.
    """

    def __init__(self, classes: int = CITYSCAPES_CLASSES) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(*layers) for layers in vgg_blocks(CONVOLUTIONS_OF_16))
        self.scores = nn.Sequential(
            nn.Conv2d(512, 4096, 7, padding=3),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Conv2d(4096, 4096, 1),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Conv2d(4096, classes, 1),
        )
        self.scores_of_block4 = nn.Conv2d(512, classes, 1)
        self.scores_of_block3 = nn.Conv2d(256, classes, 1)
        self.up2 = nn.ConvTranspose2d(classes, classes, 4, 2, bias=False)
        self.up2_again = nn.ConvTranspose2d(classes, classes, 4, 2, bias=False)
        self.up8 = nn.ConvTranspose2d(classes, classes, 16, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        levels = []
        for block in self.blocks:
            x = block(x)
            levels.append(x)
        finer = self.scores_of_block4(levels[3])
        x = finer + _cropped(self.up2(self.scores(x)), finer)
        finer = self.scores_of_block3(levels[2])
        x = finer + _cropped(self.up2_again(x), finer)
        return self.up8(x)


def _cropped(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return x[:, :, : like.shape[2], : like.shape[3]]


ENTRIES = {
    "fcn8": Entry(
        lambda size: FCN8(),
        # image: Checkmate (Jain et al., MLSys 2020), section 6.4; batch 20: FCN's paper, section 4.3
        SizeRule(Size(20, image=(416, 608)), smallest=32, multiple=32),
        label_pixels(CITYSCAPES_CLASSES, lambda side: side + 8),
    )
}
