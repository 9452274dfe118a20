"""The networks of MONeT's evaluation, at its sizes and at small ones, as graphs with choices of implementations.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), section 5 and table 1: batch sizes that fill
about 15 GB in PyTorch, on an NVIDIA Tesla P100, and the memory that MONeT needs there relative to PyTorch's if training
may take 10 % longer. Its measured peaks include the workspace of cuDNN; U-Net is its own variant.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gpu_parts.record import Record
from gpu_parts.schedules import unpacked
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.capture_options import KINDS
from remat_explorer.errors import RematError
from remat_explorer.graph import Graph

ROOFLINE, CPU, CUDA = SETTINGS = ("roofline", "cpu", "cuda")
DEVICE = "P100-roofline"
KINDS_OF_ROOFLINE = tuple(kind for kind in KINDS if kind != "algorithms")
WORKSPACE = {
    ROOFLINE: (
        "none, as convolutions by implicit GEMM need none on a GPU, but for outputs that nobody reads and the results "
        "of one chunk where a convolution runs in chunks"
    ),
    CPU: "measured",
    CUDA: "measured",
}


@dataclass(frozen=True)
class Network:
    """One network of the evaluation.

    Attributes:
        name: in the zoo.
        batch: MONeT's, at the zoo's own image size.
        ratio: memory that MONeT published, relative to PyTorch's, at 10 % overhead.
        target: the ratio that this project wants to reach on roofline costs.
        small: batch and image side for a CPU.
        gap: relative distance of cost and bound that is to be proven within a fixed budget, in
        seconds: of wall time on two cores.
        share: of eager's memory that this budget is, where it is not ``ratio``.
    """

    name: str
    batch: int
    ratio: float
    target: float
    small: tuple[int, int]
    gap: float = 0.01
    seconds: float = 15.0
    share: float | None = None

    @property
    def fixed(self) -> float:
        """The share of eager's memory within which the gap is to be proven."""
        return self.share or self.ratio


NETWORKS = {
    network.name: network
    for network in (
        Network("vgg16", 176, 0.39, 0.41, (8, 64)),
        Network("unet_monet", 11, 0.364, 0.43, (2, 96), gap=0.03, seconds=60.0, share=0.48),
        Network("mobilenet_v2", 272, 0.331, 0.315, (16, 64)),
        Network("resnet50", 184, 0.377, 0.27, (8, 64), seconds=30.0),
        Network("googlenet", 320, 0.463, 0.215, (8, 64)),
    )
}


@dataclass(frozen=True, eq=False)
class Case:
    """A network in one setting.

    Attributes:
        network: which.
        setting: one of `SETTINGS`.
        graph: with all implementations, and costs and workspace of the setting.
        size: batch and example size in words.
        executable: module and inputs that can run, or None.
    """

    network: Network
    setting: str
    graph: Graph
    size: str
    executable: tuple[Any, tuple[torch.Tensor, ...]] | None = None


def unavailable(setting: str, profiled: Path | None = None) -> str:
    """Why a setting cannot be had on this machine, or ""."""
    missing = setting == CUDA and profiled is None and not torch.cuda.is_available()
    return "no GPU here" if missing else ""


def case_of(name: str, setting: str, profiled: Path | None = None) -> Case:
    """The network in a setting: captured, and where it is to run, profiled.

    At full size without a GPU nothing is allocated but the weights: the inputs are FakeTensors.

    Args:
        name: of `NETWORKS`.
        setting: of `SETTINGS`.
        profiled: what benchmarks/gpu.py wrote of its part monet_paper on a GPU, whose graphs are those of "cuda" then.

    Raises:
        RematError: if it holds no graph of this network.
    """
    network = NETWORKS[name]
    if setting == CUDA and profiled is not None:
        return _profiled(network, profiled)
    if setting == ROOFLINE:
        loaded = rx.models.load(name, batch=network.batch)
        with FakeTensorMode(allow_non_fake_inputs=True):
            inputs = loaded.make_args()
        graph = rx.capture(loaded.module, inputs, device=DEVICE, implementations=KINDS_OF_ROOFLINE)
        return Case(network, setting, dataclasses.replace(graph, name=name), _size(loaded))
    batch, image = network.small
    loaded = rx.models.load(name, batch=network.batch, device="cuda") if setting == CUDA else None
    loaded = loaded or rx.models.load(name, batch=batch, image=image)
    graph = rx.capture(loaded.module, loaded.args, implementations="all")
    graph = rx.profile(dataclasses.replace(graph, name=name), loaded.module, loaded.args, device=setting)
    return Case(network, setting, graph, _size(loaded), (loaded.module, loaded.args))


def _profiled(network: Network, path: Path) -> Case:
    """The network as a GPU has profiled it; nothing of it can run here."""
    entry = Record(path).units.get(network.name, {})
    if "graph" not in entry:
        raise RematError(f"{str(path)!r} holds no profiled graph of {network.name!r}")
    return Case(network, CUDA, Graph.from_document(unpacked(entry["graph"])), entry["size"])


def _size(loaded: Any) -> str:
    return f"batch {loaded.batch}, {loaded.image[0]} x {loaded.image[1]} pixels"
