"""Networks that label pixels: SegNet and FCN-8s as Checkmate evaluated them, and U-Net in both papers' variants."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry, Size, SizeRule, label_pixels, mask_pixels
from remat_explorer.models.vgg import CONVOLUTIONS_OF_16, vgg_blocks

CITYSCAPES_CLASSES = 19  # Checkmate's choice in its published code


def padded_convolution(before: int, after: int) -> list[nn.Module]:
    """Zero padding as a layer of its own, which Keras stores, a 3 x 3 convolution, and normalization."""
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
    "segnet": Entry(
        lambda size: SegNet(),
        # image: Checkmate (Jain et al., MLSys 2020), section 6.4; batch 12: SegNet's paper, section 3.2
        SizeRule(Size(12, image=(416, 608)), smallest=32, multiple=16),
        label_pixels(CITYSCAPES_CLASSES, lambda side: side // 2),
    ),
    "fcn8": Entry(
        lambda size: FCN8(),
        # image: Checkmate (Jain et al., MLSys 2020), section 6.4; batch 20: FCN's paper, section 4.3
        SizeRule(Size(20, image=(416, 608)), smallest=32, multiple=32),
        label_pixels(CITYSCAPES_CLASSES, lambda side: side + 8),
    ),
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
