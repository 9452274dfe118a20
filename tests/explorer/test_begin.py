"""The sizes with which the explorer begins."""

from __future__ import annotations

import pytest

from remat_explorer import models
from remat_explorer.explorer.work.model_sources import DEFAULT_SIZES
from remat_explorer.models.registry import MODELS
from remat_explorer.solvers import checkpoint_all_peak, minimum_budget
from tests.thorough import thorough_but


@pytest.mark.parametrize("name", models.names())
def test_every_model_begins_with_a_size_that_it_takes_no_larger_than_the_published_one(name):
    begin, published = DEFAULT_SIZES[name], models.published_size(name)
    size = MODELS[name].sizes.choose(name, begin["batch"], begin.get("image"), begin.get("sequence"))
    assert max(size.image or (0,)) <= max(published.image or (0,))
    assert (size.sequence or 0) <= (published.sequence or 0)


def test_the_list_of_models_is_the_zoo():
    assert tuple(DEFAULT_SIZES) == models.names()


SAVING = ["linear32", "mlp", "residual_net", "resnet18", "segnet", "unet", "vgg16"]


@pytest.mark.parametrize("name", thorough_but(SAVING, "linear32", "mlp", "residual_net", "unet"))
def test_a_model_begins_where_at_least_a_quarter_of_its_memory_can_be_saved(name):
    begin = DEFAULT_SIZES[name]
    graph = models.load(name, begin["batch"], begin.get("image"), begin.get("sequence")).graph
    assert minimum_budget(graph).known_feasible <= 0.75 * checkpoint_all_peak(graph)
