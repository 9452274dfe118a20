"""The graphs of the arena: networks of both papers, transformers, and a diffusion U-Net; weights are made nowhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.models.diffusion import DiffusionShape, DiffusionUNet
from remat_explorer.solvers import scale_batch

DATA = Path(__file__).parents[1] / "tests" / "data"
BATCH = 32  # of the graphs named keras, whose parameters alone take most of the memory of a single image
SMALL_DIFFUSION = DiffusionShape(width=64, multiples=(1, 2, 4), attended=(1, 2), blocks=1)


def captured(name: str) -> Graph:
    """A file of a captured network, which is profiled on no machine: costs are estimates of a CPU."""
    return Graph.load(str(DATA / "captured" / f"{name}.json"))


def layers(name: str) -> Graph:
    """A network of Checkmate's experiments as graph of its layers, at a batch."""
    return scale_batch(Graph.load(str(DATA / "graphs" / f"{name}.json")), BATCH)


def zoo(name: str, sequence: int | None = None, layers: int | None = None) -> Graph:
    """A model of the zoo, captured without weights."""
    return rx.models.load(name, sequence=sequence, layers=layers).graph


def diffusion() -> Graph:
    """A U-Net of Stable Diffusion's kind with three levels, a block each."""
    with torch.device("meta"):
        module = DiffusionUNet(SMALL_DIFFUSION)
        args = (torch.zeros(8, 4, 32, 32), torch.zeros(8), torch.zeros(8, SMALL_DIFFUSION.words, SMALL_DIFFUSION.text))
    return rx.capture(module, args, loss=lambda noise: noise.square().mean())


GRAPHS: dict[str, Callable[[], Graph]] = {
    "vgg16": partial(captured, "vgg16"),
    "unet": partial(captured, "unet"),
    "mobilenet_v1": partial(captured, "mobilenet_v1"),
    "resnet50": partial(captured, "resnet50"),
    "keras_VGG19": partial(layers, "keras_VGG19"),
    "keras_segnet": partial(layers, "keras_segnet"),
    "keras_MobileNet": partial(layers, "keras_MobileNet"),
    "gpt2": partial(captured, "gpt2"),
    "bert": partial(zoo, "bert"),
    "vit": partial(zoo, "vit"),
    "llama, 8 layers": partial(zoo, "llama3.2_1b", sequence=4096, layers=8),
    "mixtral, 2 layers": partial(zoo, "mixtral_8x7b", sequence=16384, layers=2),
    "diffusion U-Net": diffusion,
}
QUICK: dict[str, Callable[[], Graph]] = {
    "vgg16": GRAPHS["vgg16"],
    "unet": GRAPHS["unet"],
    "keras_segnet": GRAPHS["keras_segnet"],
    "llama, 2 layers": partial(zoo, "llama3.2_1b", sequence=4096, layers=2),
}
