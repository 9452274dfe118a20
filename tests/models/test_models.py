"""The zoo: sizes, determinism, and errors that say what is possible."""

from __future__ import annotations

import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import ModelError, UnknownNameError

PUBLISHED_PARAMETERS = {"vgg16": 138_357_544, "unet": 31_031_810, "mlp": 1_982_986}
# vgg16: Simonyan and Zisserman 2015, table 2 ("138 million"). unet: the weights of figure 1 of its paper, with the
# padded convolutions and RGB images of Checkmate. mlp: 784*512 + 6*512*512 + 512*10 and the biases.


@pytest.mark.parametrize("name", sorted(PUBLISHED_PARAMETERS))
def test_parameters_are_as_many_as_published(name):
    module = rx.models.load(name, batch=1).module
    assert sum(parameter.numel() for parameter in module.parameters()) == PUBLISHED_PARAMETERS[name]


@pytest.mark.parametrize("name", rx.models.names())
def test_loading_twice_gives_the_same_and_leaves_the_random_state_alone(name):
    state = torch.get_rng_state()
    size = {"vgg16": 32, "unet": 64}.get(name)
    first, second = (rx.models.load(name, batch=1, image=size) for _ in range(2))
    pairs = zip(first.module.parameters(), second.module.parameters(), strict=True)
    assert all(torch.equal(mine, theirs) for mine, theirs in pairs)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(first.args, second.args, strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert first.graph.sha256 == second.graph.sha256


def test_a_published_batch_is_captured_without_its_memory():
    graph = rx.models.load("unet").graph
    assert graph.value_bytes.sum() > 30 * 2**30


def test_images_may_be_rectangles():
    x, y = rx.models.load("unet", batch=1, image=(64, 96)).args
    assert (x.shape, y.shape) == ((1, 3, 64, 96), (1, 64, 96))


def test_an_unknown_model_lists_near_ones():
    with pytest.raises(UnknownNameError, match="unknown model 'vg16'; did you mean 'vgg16'"):
        rx.models.load("vg16")


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("vgg16", {"batch": 0}, "batch of 'vgg16' is 0; give a whole number of at least 1"),
        ("vgg16", {"image": 16}, "image size of 'vgg16' is 16; give pixels, .* at least 32"),
        ("unet", {"image": (64, 70)}, r"image size of 'unet' is \(64, 70\); .* a multiple of 16"),
        ("mlp", {"image": 28}, "'mlp' takes no images, but the image size 28 was given"),
    ],
)
def test_sizes_that_do_not_suit_are_quoted(name, sizes, message):
    with pytest.raises(ModelError, match=message):
        rx.models.load(name, **sizes)
