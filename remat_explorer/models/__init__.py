"""The model zoo: plain torch, random weights, each model with the batch and example size of its paper."""

from __future__ import annotations

from typing import Any

import torch

from remat_explorer.capture import is_absent_cuda, map_tensors, torch_device
from remat_explorer.capture_options import CUDA
from remat_explorer.entry_checks import require_arguments
from remat_explorer.errors import ModelError, UnknownNameError
from remat_explorer.models import (
    bert,
    chains,
    decoder,
    densenet,
    diffusion,
    googlenet,
    gpt2,
    mamba,
    mobilenet,
    resnet,
    segmentation_nets,
    vgg,
    vit,
    whisper,
)
from remat_explorer.models.entry import Entry, Pixels, Size
from remat_explorer.models.loaded_model import SEED, LoadedModel, WithLoss

MODELS: dict[str, Entry] = {
    **bert.ENTRIES,
    **chains.ENTRIES,
    **decoder.ENTRIES,
    **densenet.ENTRIES,
    **diffusion.ENTRIES,
    **googlenet.ENTRIES,
    **gpt2.ENTRIES,
    **mamba.ENTRIES,
    **mobilenet.ENTRIES,
    **resnet.ENTRIES,
    **segmentation_nets.ENTRIES,
    **vgg.ENTRIES,
    **vit.ENTRIES,
    **whisper.ENTRIES,
}
PRECISIONS = ("float32", "bfloat16", "autocast")


def names() -> tuple[str, ...]:
    """Names of the models, in alphabetical order.

    >>> [name for name in names() if "net" not in name]
    ['bert', 'chain', 'dit_xl', 'fcn8', 'gpt2', 'linear32', 'llama3.2_1b', 'llama3_70b', 'llama3_8b', 'mamba_130m', \
'mixtral_8x7b', 'mlp', 'qwen2.5_0.5b', 'qwen3_8b', 'stable_diffusion', 'vgg16', 'vgg19', 'vit', 'whisper_small']
    """
    return tuple(sorted(MODELS))


def published_size(name: str) -> Size:
    """The batch and the example size that `load` takes by itself.

    Raises:
        UnknownNameError: if there is no such model.

    >>> published_size("unet")
    Size(batch=32, image=(416, 608), sequence=None, layers=None, tied=None)
    """
    require_arguments(published_size, locals())
    return _entry(name).sizes.published


def load(
    name: str,
    batch: int | None = None,
    image: Pixels | None = None,
    sequence: int | None = None,
    device: str | torch.device = "cpu",
    costs: str | None = None,
    *,
    layers: int | None = None,
    tied: bool | None = None,
    precision: str = "float32",
) -> LoadedModel:
    """A model of the zoo, with inputs.

    Args:
        name: one of `names`.
        batch: examples in a batch, at least 1; None for the published number.
        image: pixels, one number or (height, width); None for the published size.
        sequence: tokens of an example, at most as many as the model knows positions; None for the published number.
        device: where weights and inputs lie: "cpu", "cuda", "auto" for CUDA where there is one, or a `torch.device`.
            For "cuda" without a device they are on the meta device, shapes without content, and the graph is that of
            CUDA's kernels.
        costs: the device whose published rates give the costs of the graph, as ``device`` of `remat_explorer.capture`;
            None for "cpu", or for CUDA without a device "cuda".
        layers: blocks of the model, where they can be chosen; None for the published number.
        tied: whether the embedding of the tokens is also the last layer's weight, where that can be chosen; None for
            as published.
        precision: of weights and inputs, "float32" or "bfloat16"; or "autocast" for float32 under autocast to bfloat16.

    Raises:
        UnknownNameError: if there is no such model or precision.
        ModelError: if the batch, image, sequence or layers do not suit the model.
        ExecutionError: if there is no such device.

    >>> load("mlp", batch=4).graph.n
    34
    >>> load("mlp", batch=4, device="cuda", costs="H100").graph.n
    34
    """
    require_arguments(load, locals(), but=("batch", "image", "sequence", "layers", "tied"))
    entry = _entry(name)
    if precision not in PRECISIONS:
        raise UnknownNameError("precision", str(precision), PRECISIONS)
    size, absent = entry.sizes.choose(name, batch, image, sequence, layers, tied), is_absent_cuda(device)
    if absent and precision == "autocast":
        raise ModelError(
            "autocast casts other operations on CUDA than on the CPU, and no CUDA device is here to ask; "
            'take precision="bfloat16"'
        )
    target = torch.device("meta") if absent else torch_device(device)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32

    def build() -> WithLoss:
        return WithLoss(entry.build(size), entry.task.loss, precision == "autocast").to(dtype)

    def place(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(target, dtype if tensor.is_floating_point() else tensor.dtype)

    def make_args() -> tuple[Any, ...]:
        return map_tensors(place, entry.task.make(size, torch.Generator().manual_seed(SEED)))

    kernels, costs = CUDA if absent else None, costs or (CUDA if absent else "cpu")
    sizes = size.batch, size.image, size.sequence, size.layers
    return LoadedModel(name, build, *sizes, make_args, target, costs, kernels)


def _entry(name: str) -> Entry:
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    return MODELS[name]
