"""What `load` gives: a model that returns its loss, and inputs for it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from remat_explorer.capture import capture, fake_tensor_mode
from remat_explorer.errors import ModelError
from remat_explorer.free_memory import free_bytes
from remat_explorer.graph import Graph
from remat_explorer.models.entry import Loss
from remat_explorer.quantities import format_bytes

SEED = 0
Inputs = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model of the zoo.

    Attributes:
        name: its name in the zoo.
        build: makes the module with its loss, where torch makes tensors.
        batch: examples in a batch.
        image: height and width in pixels, or None where inputs are no images.
        sequence: tokens of an example, or None where inputs are no sequences.
        layers: blocks of the model, or None where they cannot be chosen.
        make_args: makes the inputs; nothing is allocated before `args` is asked for.
        device: where `module` and `args` lie.
        costs, kernels: as `remat_explorer.capture` takes ``device`` and ``kernels``, for `graph`.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: int
    image: tuple[int, int] | None
    sequence: int | None
    layers: int | None
    make_args: Inputs
    device: torch.device
    costs: str = "cpu"
    kernels: str | None = None

    @cached_property
    def module(self) -> nn.Module:
        """Takes ``args``, returns the scalar loss; random weights, the same at every load, made when first asked for.

        Raises:
            ModelError: if there is no memory for the weights; `shapes` and `graph` need none.
        """
        if self.device.type == "meta":
            return self.shapes
        needed, free = self.weight_bytes, free_bytes("cpu")
        if needed > free:
            raise ModelError(
                f"the weights of {self.name!r} need {format_bytes(needed)}, but {format_bytes(free)} are free here; "
                "its graph is captured without them (.graph and .shapes), and fewer layers need less (layers=1)"
            )
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(SEED)
            return self.build().to(self.device).train()

    @cached_property
    def shapes(self) -> nn.Module:
        """The module on the meta device: its weights have shapes and no content."""
        with torch.device("meta"):
            return self.build().train()

    @property
    def weight_bytes(self) -> int:
        """Bytes of its parameters and buffers."""
        return sum(tensor.nbytes for tensor in (*self.shapes.parameters(), *self.shapes.buffers()))

    @cached_property
    def args(self) -> tuple[Any, ...]:
        """The inputs: random, the same at every load, on the module's device."""
        return self.make_args()

    @cached_property
    def graph(self) -> Graph:
        """The captured training graph, under the model's name; neither weights nor inputs are allocated for it.

        Where the model was loaded for CUDA without a device, it is that of CUDA's kernels.
        """
        with fake_tensor_mode():
            fakes = self.make_args()
        graph = capture(self.shapes, fakes, device=self.costs, kernels=self.kernels)
        return dataclasses.replace(graph, name=self.name)


class WithLoss(nn.Module):
    """A model and its loss.

    Args:
        model: takes one input, or several as a tuple.
        loss: of its output and the labels.
        autocast: whether forward and loss run under autocast to bfloat16.
    """

    def __init__(self, model: nn.Module, loss: Loss, autocast: bool = False) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.autocast = autocast

    def forward(self, x: Any, y: torch.Tensor) -> torch.Tensor:
        inputs = x if isinstance(x, tuple) else (x,)
        with torch.autocast(y.device.type, torch.bfloat16) if self.autocast else contextlib.nullcontext():
            return self.loss(self.model(*inputs), y)
