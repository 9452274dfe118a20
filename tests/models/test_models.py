"""Loading from the zoo: determinism, sizes, and errors that say what is possible."""

from __future__ import annotations

import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import ModelError, UnknownNameError
from tests.thorough import thorough_but

TWICE = ["chain", "mlp", "residual_net", "segnet", "unet", "unet_monet", "vgg16"]


@pytest.mark.parametrize("name", thorough_but(TWICE, "chain", "mlp", "residual_net"))
def test_loading_twice_gives_the_same_and_leaves_the_random_state_alone(name):
    state = torch.get_rng_state()
    size = 32 if rx.models.published_size(name).image else None
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
    assert (x.shape, y.shape) == ((1, 3, 64, 96), (1, 32, 48))


def test_sequences_may_be_shorter_than_the_table_of_positions():
    loaded = rx.models.load("bert", batch=2, sequence=24)
    tokens, labels = loaded.args
    assert loaded.sequence == 24
    assert tokens.shape == labels.shape == (2, 24)


def test_the_table_of_positions_of_the_vision_transformer_follows_the_image():
    module = rx.models.load("vit", batch=1, image=(32, 48)).module
    assert module.get_parameter("model.positions").shape == (1, 1 + 2 * 3, 768)


def test_an_unknown_model_lists_near_ones():
    with pytest.raises(UnknownNameError, match="unknown model 'vg16'; did you mean 'vgg16'"):
        rx.models.load("vg16")


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("vgg16", {"batch": 0}, "batch of 'vgg16' is 0; give a whole number of at least 1"),
        ("vgg16", {"batch": True}, "batch of 'vgg16' is True"),
        ("vgg16", {"image": 16}, "image size of 'vgg16' is 16; give pixels, .* at least 32"),
        ("unet", {"image": (64, 70)}, r"image size of 'unet' is \(64, 70\); .* a multiple of 16"),
        ("fcn8", {"image": 48}, "image size of 'fcn8' is 48; .* at least 32, a multiple of 32"),
        ("mlp", {"image": 28}, "'mlp' takes no images, but the image size 28 was given"),
        ("gpt2", {"image": 224}, "'gpt2' takes no images, but the image size 224 was given"),
        ("vit", {"sequence": 16}, "'vit' takes no sequences, but 16 tokens were given"),
        ("gpt2", {"sequence": 1025}, "sequence of 'gpt2' is 1025; give a whole number of tokens from 1 to 1024"),
        ("bert", {"sequence": 0}, "sequence of 'bert' is 0; give a whole number of tokens from 1 to 512"),
    ],
)
def test_sizes_that_do_not_suit_are_quoted(name, sizes, message):
    with pytest.raises(ModelError, match=message):
        rx.models.load(name, **sizes)
