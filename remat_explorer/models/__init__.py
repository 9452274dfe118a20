"""The model zoo: plain torch, random weights, each model with the batch and example size of its paper."""

from __future__ import annotations

import torch

from remat_explorer.capture.step.placement import is_absent_cuda, torch_device
from remat_explorer.capture_options import CUDA
from remat_explorer.errors import UnknownNameError
from remat_explorer.models.entry import Entry
from remat_explorer.models.loaded_model import LoadedModel, WithLoss
from remat_explorer.models.registry import MODELS
from remat_explorer.models.sizes import Pixels, Size

__all__ = ["LoadedModel", "Size", "load", "names", "published_size"]
SEED = 0


def names() -> tuple[str, ...]:
    """Names of the models, in alphabetical order.

    >>> [name for name in names() if "net" not in name]
    ['bert', 'chain', 'fcn8', 'gpt2', 'linear32', 'mlp', 'vgg16', 'vgg19', 'vit']
    """
    return tuple(sorted(MODELS))


def published_size(name: str) -> Size:
    """The batch and the example size that `load` takes by itself.

    Raises:
        UnknownNameError: if there is no such model.

    >>> published_size("unet")
    Size(batch=32, image=(416, 608), sequence=None)
    """
    return _entry(name).sizes.published


def load(
    name: str,
    batch: int | None = None,
    image: Pixels | None = None,
    sequence: int | None = None,
    device: str = "cpu",
    costs: str | None = None,
) -> LoadedModel:
    """A model of the zoo, with inputs.

    Args:
        name: one of `names`.
        batch: examples in a batch, at least 1; None for the published number.
        image: pixels, one number or (height, width); None for the published size.
        sequence: tokens of an example, at most as many as the model knows positions; None for that many.
        device: where weights and inputs lie: "cpu", "cuda", or "auto" for CUDA where there is one. For "cuda" without
            a device they are on the meta device, shapes without content, and the graph is that of CUDA's kernels.
        costs: the device whose published rates give the costs of the graph, as ``device`` of `remat_explorer.capture`;
            None for "cpu", or for CUDA without a device "cuda".

    Raises:
        UnknownNameError: if there is no such model.
        ModelError: if the batch, image or sequence does not suit the model.
        ExecutionError: if there is no such device.

    >>> load("mlp", batch=4).graph.n
    34
    >>> load("mlp", batch=4, device="cuda", costs="H100").graph.n
    34
    """
    entry = _entry(name)
    size, absent = entry.sizes.choose(name, batch, image, sequence), is_absent_cuda(device)
    target = torch.device("meta") if absent else torch_device(device)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(SEED)
        module = WithLoss(entry.build(size), entry.task.loss).to(target).train()

    def make_args() -> tuple[torch.Tensor, ...]:
        return tuple(tensor.to(target) for tensor in entry.task.make(size, torch.Generator().manual_seed(SEED)))

    kernels, costs = CUDA if absent else None, costs or (CUDA if absent else "cpu")
    return LoadedModel(name, module, size.batch, size.image, size.sequence, make_args, costs, kernels)


def _entry(name: str) -> Entry:
    if name not in MODELS:
        raise UnknownNameError("model", name, MODELS)
    return MODELS[name]
