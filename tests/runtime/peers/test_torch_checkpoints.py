"""Which parts of a model become blocks or segments, and that their own forward comes back."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

import remat_explorer as rx
from remat_explorer.runtime.peers.torch_checkpoints import (
    blocks_of,
    checkpoint_blocks,
    checkpoint_segments,
    largest_sequential,
    replace_forwards,
)
from tests.runtime.kinds_of_models import linear

BLOCKS = {
    "chain": (16, "Sequential"),
    "densenet121": (58, "DenseLayer"),
    "googlenet": (9, "Inception"),
    "gpt2": (12, "GPT2Block"),
    "mlp": (0, ""),
    "mobilenet_v1": (0, ""),
    "mobilenet_v2": (17, "InvertedResidual"),
    "resnet18": (8, "ResidualBlock"),
    "unet": (4, "Sequential"),
    "vgg16": (0, ""),
}
TRUNKS = {"vgg16": ("features", 31), "resnet18": ("stages", 4), "mlp": ("", 15), "mobilenet_v1": ("features", 81)}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_the_zoo(name):
    blocks = blocks_of(rx.models.load(name, batch=1).module)
    count, kind = BLOCKS[name]
    assert len(blocks) == count
    assert {type(block).__name__ for block in blocks} == ({kind} if count else set())


@pytest.mark.parametrize("name", TRUNKS)
def test_the_trunk_is_the_sequence_with_the_most_layers(name):
    model: Any = rx.models.load(name, batch=1).module.model
    path, members = TRUNKS[name]
    trunk = largest_sequential(model)
    assert trunk is not None
    assert trunk is (model.get_submodule(path) if path else model)
    assert len(trunk) == members


def test_a_block_inside_a_block_of_its_class_is_none():
    inner = [nn.Sequential(linear(), nn.ReLU()) for _ in range(2)]
    outer = nn.Sequential(nn.Sequential(*inner), nn.Sequential(linear(), nn.ReLU()))
    assert blocks_of(outer) == tuple(outer)


def test_a_forward_of_the_persons_own_comes_back_even_after_an_error():
    layer: Any = linear()
    layer.forward = mine = lambda x: x
    with pytest.raises(ZeroDivisionError), replace_forwards({layer: lambda x: 1 / 0}):
        layer(0)
    assert layer.forward is mine


def test_segments_and_blocks_leave_no_trace():
    model = nn.Sequential(nn.Sequential(linear(), nn.ReLU()), nn.Sequential(linear(), nn.ReLU()))
    with checkpoint_segments(model, 2), checkpoint_blocks(blocks_of(model)):
        assert all("forward" in vars(part) for part in (model, *model))
    assert not any("forward" in vars(part) for part in model.modules())
