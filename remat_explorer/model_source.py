"""A model that commands can capture and run, wherever it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat_explorer.capture_options import CaptureOptions

if TYPE_CHECKING:
    import torch
    from torch import nn

    from remat_explorer.graph import Graph


@dataclass(frozen=True, eq=False)
class Source:
    """A model, and how to make its inputs.

    Attributes:
        module: the model.
        make_args: makes the positional inputs; called under FakeTensorMode where they need not be real.
        kwargs: keyword inputs.
        loss: from the model's output to a scalar; None as for `remat_explorer.capture`.
        name: what to call its graph; None for the name of the model's class.
        sizes: batch, image and sequence of the inputs, as far as they are known.
        kernels: whose kernels are meant, as `remat_explorer.capture` takes them.
    """

    module: nn.Module
    make_args: Callable[[], tuple[Any, ...]]
    kwargs: dict[str, Any] | None = None
    loss: Callable[[Any], torch.Tensor] | None = None
    name: str | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    kernels: str | None = None


def capture_source(source: Source, costs: str | None = None, options: CaptureOptions | None = None) -> Graph:
    """The training graph of a model, by the one call of `capture` that all commands share.

    Args:
        source: what to capture; no memory is taken for inputs that it can make under FakeTensorMode.
        costs: the device whose published rates give the costs; None for the CPU, or for CUDA where that is meant.
        options: what to join and split, and whose optimizer state counts.

    Raises:
        CaptureError: if it is no static training graph.
        UnknownNameError: if no rates of such a device are known.
    """
    from remat_explorer.capture import capture
    from remat_explorer.capture.fake_mode import fake_tensor_mode

    with fake_tensor_mode():
        args = source.make_args()
    device, chosen = costs or source.kernels or "cpu", dataclasses.asdict(options or CaptureOptions())
    chosen["kernels"] = source.kernels
    graph = capture(source.module, args, source.kwargs, source.loss, device=device, **chosen)
    return graph if source.name is None else dataclasses.replace(graph, name=source.name)
