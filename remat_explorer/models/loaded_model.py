"""What `load` gives: a model that returns its loss, and inputs for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from remat_explorer.capture import capture
from remat_explorer.capture.fake_mode import fake_tensor_mode
from remat_explorer.graph import Graph
from remat_explorer.models.tasks import Loss

Inputs = Callable[[], tuple[torch.Tensor, ...]]


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model of the zoo.

    Attributes:
        name: its name in the zoo.
        module: takes ``args``, returns the scalar loss; random weights, the same at every load.
        batch: examples in a batch.
        image: height and width in pixels, or None where inputs are no images.
        sequence: tokens of an example, or None where inputs are no sequences.
        make_args: makes the inputs; nothing is allocated before `args` is asked for.
        costs, kernels: as `remat_explorer.capture` takes ``device`` and ``kernels``, for `graph`.
    """

    name: str
    module: nn.Module
    batch: int
    image: tuple[int, int] | None
    sequence: int | None
    make_args: Inputs
    costs: str = "cpu"
    kernels: str | None = None

    @cached_property
    def args(self) -> tuple[torch.Tensor, ...]:
        """The inputs: random, the same at every load, on the module's device."""
        return self.make_args()

    @cached_property
    def graph(self) -> Graph:
        """The captured training graph, under the model's name; the inputs need not fit into memory for it.

        Where the model was loaded for CUDA without a device, it is that of CUDA's kernels.
        """
        with fake_tensor_mode():
            fakes = self.make_args()
        graph = capture(self.module, fakes, device=self.costs, kernels=self.kernels)
        return dataclasses.replace(graph, name=self.name)


class WithLoss(nn.Module):
    """A model and its loss."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.loss(self.model(x), y)
