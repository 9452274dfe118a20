"""Whisper: an encoder of sound and a decoder of text, with attention of one to the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from remat_explorer.models.entry import Entry, Size, SizeRule, Task, predict_tokens
from remat_explorer.models.transformer import Attention, feed_forward

VOCABULARY, TOKENS = 51865, 448  # of the multilingual models, in the authors' code
BANDS, FRAMES = 80, 3000  # of a spectrogram of 30 seconds: Radford et al., 2022, section 2.2
BIASES = "qvo"  # keys have none, in the authors' code


@dataclass(frozen=True)
class WhisperShape:
    """What a Whisper is made of: channels of a position, blocks of encoder and decoder each, heads, bands, frames."""

    width: int
    layers: int
    heads: int
    bands: int = BANDS
    frames: int = FRAMES
    vocabulary: int = VOCABULARY


class WhisperBlock(nn.Module):
    """Normalize first; a block of the decoder also attends to the sound: Radford et al., 2022, figure 1."""

    def __init__(self, width: int, heads: int, decodes: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, biases=BIASES, causal=decodes)
        if decodes:
            self.norm_of_sound = nn.LayerNorm(width)
            self.attention_to_sound = Attention(width, heads, biases=BIASES)
        self.norm2 = nn.LayerNorm(width)
        self.feed_forward = feed_forward(width, nn.GELU())

    def forward(self, x: torch.Tensor, sound: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        if sound is not None:
            x = x + self.attention_to_sound(self.norm_of_sound(x), sound)
        return x + self.feed_forward(self.norm2(x))


class Whisper(nn.Module):
    """From spectrograms (batch, bands, frames) and tokens (batch, sequence) to logits (batch, sequence, vocabulary).

    Source: Radford et al., "Robust speech recognition via large-scale weak supervision", 2022, section 2.2. Two
    convolutions halve the frames; their positions are sines that are not trained. The embedding of the tokens is also
    the last layer's weight.
    """

    times: torch.Tensor

    def __init__(self, shape: WhisperShape) -> None:
        super().__init__()
        width = shape.width
        self.stem = nn.ModuleList([nn.Conv1d(shape.bands, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)])
        self.encoder = nn.Sequential(*(WhisperBlock(width, shape.heads, False) for _ in range(shape.layers)))
        self.norm_of_sound = nn.LayerNorm(width)
        self.tokens = nn.Embedding(shape.vocabulary, width)
        self.positions = nn.Parameter(nn.init.normal_(torch.empty(TOKENS, width), std=0.02))
        self.decoder = nn.ModuleList(WhisperBlock(width, shape.heads, True) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.register_buffer("times", _waves(shape.frames // 2, width), persistent=False)

    def forward(self, spectrograms: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        sound = spectrograms
        for convolution in self.stem:
            sound = functional.gelu(convolution(sound))
        sound = self.norm_of_sound(self.encoder(sound.transpose(1, 2) + self.times))
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        for block in self.decoder:
            x = block(x, sound)
        return functional.linear(self.norm(x), self.tokens.weight)


def _waves(times: int, width: int) -> torch.Tensor:
    """Sines and cosines of each time, of shape (times, width)."""
    frequencies = 10000.0 ** -(torch.arange(width // 2) / (width // 2 - 1))
    angles = torch.arange(float(times))[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], 1)


def _entry(shape: WhisperShape) -> Entry:
    words = predict_tokens(shape.vocabulary)

    def make(size: Size, generator: torch.Generator) -> tuple[Any, torch.Tensor]:
        tokens, labels = words.make(size, generator)
        return (torch.randn(size.batch, shape.bands, shape.frames, generator=generator), tokens), labels

    def build(size: Size) -> Whisper:
        return Whisper(replace(shape, layers=size.layers or shape.layers))

    sizes = SizeRule(Size(256, sequence=TOKENS, layers=shape.layers))  # appendix F of the paper
    return Entry(build, sizes, Task(make, words.loss))


ENTRIES = {"whisper_small": _entry(WhisperShape(768, 12, 12))}  # table 1 of the paper
