"""ViT-B/16: a transformer whose tokens are patches of an image."""

from __future__ import annotations

import torch
from torch import nn

from remat_explorer.models.entry import Entry, Size, SizeRule, label_images
from remat_explorer.models.transformer import SelfAttention, feed_forward

PATCH, WIDTH, HEADS, LAYERS = 16, 768, 12, 12
DROPOUT = 0.1  # table 3 of the paper, for training on ImageNet
EPSILON = 1e-6  # of the layer normalization, in the authors' code


class ViTBlock(nn.Module):
    """Dosovitskiy et al., ICLR 2021, equations 2 and 3: normalize first; dropout after every dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, EPSILON)
        self.attention = SelfAttention(WIDTH, HEADS)
        self.norm2 = nn.LayerNorm(WIDTH, EPSILON)
        self.feed_forward = feed_forward(WIDTH, nn.GELU(), DROPOUT)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class VisionTransformer(nn.Module):
    """Dosovitskiy et al., ICLR 2021, table 1 and section 3.1: ViT-Base with patches of 16 x 16 pixels.

    Each patch and the class token have a position of their own, so the image size is fixed when the model is built, in
    multiples of 16 pixels. The head is one linear layer.
    """

    def __init__(self, image: tuple[int, int] = (224, 224), classes: int = 1000) -> None:
        super().__init__()
        patches = (image[0] // PATCH) * (image[1] // PATCH)
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.class_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(nn.init.normal_(torch.empty(1, 1 + patches, WIDTH), std=0.02))
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(ViTBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH, EPSILON)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], 1)
        x = self.norm(self.blocks(self.dropout(tokens + self.positions)))
        return self.head(x[:, 0])


ENTRIES = {
    "vit": Entry(
        lambda size: VisionTransformer(size.image_sides),
        SizeRule(Size(4096, image=(224, 224)), smallest=PATCH, multiple=PATCH),  # section 4.1 of the paper
        label_images(1000),
    )
}
