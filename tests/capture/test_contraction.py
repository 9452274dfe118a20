"""Contraction rules on small models: what is joined, and what must not be."""

from __future__ import annotations

import torch
from torch import nn

import remat_explorer as rx


def forward_names(model: nn.Module, x: torch.Tensor) -> list[str]:
    return [node.name for node in rx.capture(model, (x,)).operations if node.phase == "forward"]


def test_an_activation_runs_in_place_in_its_only_producer():
    assert forward_names(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.ones(2, 4)) == ["0 linear + relu", "sum"]


def test_an_activation_whose_input_the_backward_pass_reads_stays_an_operation():
    assert forward_names(nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.ones(2, 4)) == ["0 linear", "1 gelu", "sum"]


def test_hardtanh_runs_in_place_too_since_its_backward_reads_the_result():
    model = nn.Sequential(nn.Linear(4, 4), nn.Hardtanh(), nn.Linear(4, 4), nn.ReLU6())
    x = torch.tensor([[-3.0, -1.0, 1.0, 9.0]])
    assert forward_names(model, x) == ["0 linear + hardtanh", "2 linear + hardtanh", "sum"]


def test_an_activation_whose_input_another_operation_reads_stays_an_operation():
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.layer(x)
            return torch.relu(y) * y.exp()

    assert "layer linear" in forward_names(Fork(), torch.ones(2, 4))


def test_a_small_bias_gradient_joins_the_weight_gradient_and_a_large_one_does_not():
    def names(width: int) -> list[str]:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, width), nn.ReLU())
        return [node.name for node in rx.capture(model, (torch.ones(2, 8),)).operations]

    assert "1 gradient of bias, weight" in names(16)
    assert "1 gradient of bias, weight" not in names(2**15)


def test_clones_that_keep_the_layout_are_no_operations():
    class Copying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).clone().detach_().sum() + self.layer(x.clone()).sum()

    assert not [name for name in forward_names(Copying(), torch.ones(2, 4)) if "clone" in name]
