"""What calls give that are as they were traced is what they give when they run again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from remat_explorer.capture import propagation
from remat_explorer.capture.graph_rewrites import rewrite_graph
from remat_explorer.capture.joint_trace import trace_joint
from remat_explorer.capture.propagation import propagate, storage_key, tensors_of
from remat_explorer.capture.training_step import TrainingStep
from remat_explorer.capture_options import CaptureOptions


class Copies(nn.Module):
    """Clones that can go, of which views are taken, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(8, 8), nn.ReLU6()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.layer(x)).clone()
        first, second = y[:, :4], y[:, 4:].clone()
        return (first.t() @ second + torch.arange(4.0)).tanh().sum() + y.view(-1).pow(2).mean()


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.into(self.norm(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return nn.functional.dropout(attended.transpose(1, 2).flatten(2), 0.5).mean()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.cell = nn.LSTM(8, 8, batch_first=True), nn.GRUCell(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(self.layer(x)[0][:, -1]).mean()


def convolutions(layout: torch.memory_format) -> nn.Module:
    layers = nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.SiLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(4, 1, 1, groups=1)
    return nn.Sequential(*layers, nn.Hardtanh(), nn.Flatten(0)).to(memory_format=layout)  # type: ignore[call-overload]


IMAGE = torch.ones(2, 8, 8, 8)
CASES: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "copies": (Copies(), torch.ones(4, 8)),
    "attention": (Attending(), torch.ones(2, 6, 8)),
    "recurrent": (Recurrent(), torch.ones(2, 6, 8)),
    "convolutions": (convolutions(torch.contiguous_format), IMAGE),
    "channels last": (convolutions(torch.channels_last), IMAGE.to(memory_format=torch.channels_last)),
    "evaluation": (convolutions(torch.contiguous_format).eval(), IMAGE),
    "embedding": (nn.Sequential(nn.Embedding(9, 8), nn.LogSoftmax(-1)), torch.arange(6).view(2, 3)),
}


def description(fakes: dict[Any, Any]) -> list[Any]:
    """Layout of every tensor, and which share their storage."""
    number: dict[int, int] = {}
    described = []
    for node, value in fakes.items():
        for tensor in tensors_of(value):
            storage = number.setdefault(storage_key(tensor), len(number)), tensor.untyped_storage().nbytes()
            described.append((node.name, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), storage))
    return described


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("contract", [True, False])
def test_calls_as_they_were_traced_give_what_they_give_when_they_run_again(case, contract, monkeypatch):
    model, x = CASES[case]
    step = TrainingStep(model, (x,), loss=lambda output: output.mean())
    module = trace_joint(step, step.tensors((x,))).module
    rewrite_graph(module, CaptureOptions(contract=contract))
    run: list[Any] = []
    plain = propagation.run_node
    monkeypatch.setattr(propagation, "run_node", lambda node, values: run.append(node) or plain(node, values))
    remembered = description(propagate(module))
    few = len(run)
    for node in module.graph.nodes:
        node.meta.pop(propagation._CALL, None)
    assert description(propagate(module)) == remembered
    assert few < len(run) - few
