"""The models of the measurements: the zoo at sizes of several GB, and large ones at tens of GB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.graph import Graph

Size = tuple[int, int | None, int | None]  # batch, pixels, tokens
TINY: Size = (2, 64, 16)
ZOO: dict[str, Size] = {  # in an order of value: what comes last may be missing
    "resnet50": (64, 224, None),
    "vgg16": (64, 224, None),
    "gpt2": (4, None, 1024),
    "mobilenet_v1": (160, 224, None),
    "unet": (12, 416, None),
    "bert": (8, None, 512),
    "googlenet": (128, 224, None),
    "mobilenet_v2": (112, 224, None),
    "unet_monet": (4, 416, None),
    "vit": (48, 224, None),
    "resnet18": (256, 224, None),
    "densenet121": (48, 224, None),
    "vgg19": (64, 224, None),
    "segnet": (12, 416, None),
    "fcn8": (12, 416, None),
    "linear32": (16, 224, None),
    "residual_net": (8192, 32, None),
    "chain": (2**18, None, None),
    "mlp": (2**18, None, None),
    "densenet161": (24, 224, None),
}
LARGE: dict[str, tuple[str, Size]] = {  # the model of the zoo, or of `_BUILT`
    "llama of 4 layers": ("llama of 4 layers", (2, None, 2048)),
    "resnet50 large": ("resnet50", (512, 224, None)),
    "gpt2 large batch": ("gpt2", (20, None, 1024)),
    "llama 1B": ("llama", (4, None, 2048)),
    "vit large batch": ("vit", (320, 224, None)),
}
TINY_MODELS = ("mlp", "residual_net", "llama 1B")
VALIDATED = ("residual_net", "resnet18", "resnet50", "unet", "vgg16", "gpt2", "bert", "vit", "llama of 4 layers")
FIRST_ZOO = 6  # models of the zoo that come before the large ones


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model that returns its loss, with inputs, on a device.

    Attributes:
        name: in the tables.
        size: in words.
        module, args: what runs.
        make_args: makes the inputs anew.
    """

    name: str
    size: str
    module: nn.Module
    make_args: Callable[[], tuple[torch.Tensor, ...]]

    @cached_property
    def args(self) -> tuple[torch.Tensor, ...]:
        """The inputs."""
        return self.make_args()

    def graph(self, **options: Any) -> Graph:
        """The captured graph, for which inputs need not fit into memory; ``options`` are those of `rx.capture`."""
        with FakeTensorMode(allow_non_fake_inputs=True):
            fakes = self.make_args()
        return rx.capture(self.module, fakes, **options)


def names(tiny: bool) -> list[str]:
    """All models, in an order of value."""
    zoo = list(ZOO)
    return list(TINY_MODELS) if tiny else [*zoo[:FIRST_ZOO], *LARGE, *zoo[FIRST_ZOO:]]


def is_built(name: str) -> bool:
    """Whether a model is none of the zoo; such a one can be made of FakeTensors, too."""
    return name in LARGE and LARGE[name][0] in _BUILT


def load(name: str, device: str, tiny: bool = False) -> Loaded:
    """A model at its size, on a device; the same weights and inputs at every load."""
    base, size = LARGE[name] if name in LARGE else (name, ZOO[name])
    batch, image, sequence = TINY if tiny else size
    if base in _BUILT:
        return _BUILT[base](name, batch, sequence or TINY[2] or 1, device, tiny)
    published = rx.models.published_size(base)
    image, sequence = (image if published.image else None), (sequence if published.sequence else None)
    loaded = rx.models.load(base, batch, image, sequence, device=device)
    words = str(rx.models.Size(loaded.batch, loaded.image, loaded.sequence))
    return Loaded(name, words, _shortened(loaded.module) if tiny else loaded.module, loaded.make_args)


def _shortened(model: nn.Module) -> nn.Module:
    """The model with two of each sequence of blocks that are alike from the second on."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            blocks = list(child) if isinstance(child, nn.Sequential) else []
            if len(blocks) > 2 and len({_sizes(block) for block in blocks[1:]}) == 1:
                setattr(module, name, nn.Sequential(*blocks[:2]))
    return model


def _sizes(block: nn.Module) -> tuple[Any, ...]:
    return type(block), *(tuple(parameter.shape) for parameter in block.parameters())


class WithLabels(nn.Module):
    """A language model of transformers that learns to predict its own input."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=words, labels=words).loss


def _llama(layers: int, name: str, batch: int, tokens: int, device: str, tiny: bool) -> Loaded:
    """A decoder with the widths of Llama 3.2 1B, which has 16 layers, and random weights, in bfloat16."""
    import transformers

    width, inner, words, heads, groups = (64, 128, 256, 4, 1) if tiny else (2048, 8192, 128256, 32, 8)
    configuration = transformers.LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=2 if tiny else layers,
        vocab_size=words,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        max_position_embeddings=tokens,
        tie_word_embeddings=True,
        use_cache=False,
    )
    torch.manual_seed(0)
    with torch.device(device):
        module = WithLabels(_in_bfloat16(lambda: transformers.LlamaForCausalLM(configuration).train()))

    def make_args() -> tuple[torch.Tensor, ...]:
        draw = torch.Generator().manual_seed(0)
        return (torch.randint(words, (batch, tokens), generator=draw).to(device),)

    return Loaded(name, f"batch {batch}, {tokens} tokens", module, make_args)


def _in_bfloat16(make: Callable[[], nn.Module]) -> nn.Module:
    """A model whose parameters are made in bfloat16; FakeTensors cannot be converted in place."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return make()
    finally:
        torch.set_default_dtype(before)


_BUILT = {"llama": partial(_llama, 16), "llama of 4 layers": partial(_llama, 4)}
