"""Every model of the zoo trains and can be captured at a small size."""

from __future__ import annotations

import numpy as np
import torch
from small_models import SMALL

import remat_explorer as rx

OUTPUTS = {
    "fcn8": (1, 19, 40, 40),
    "segnet": (1, 19, 16, 16),
    "unet": (1, 19, 16, 16),
    "unet_monet": (1, 1, 32, 32),
    "gpt2": (1, 16, 50257),
    "bert": (1, 16, 30522),
    "chain": (1, 256),
    "mlp": (1, 10),
    "residual_net": (1, 10),
}


def test_every_model_is_tried():
    assert sorted(SMALL) == list(rx.models.names())


def test_a_step_gives_every_parameter_a_finite_gradient(small):
    module, (x, y) = small.module, small.args
    module.zero_grad()
    output = module.model(x)
    assert output.shape == OUTPUTS.get(small.name, (1, 1000))
    module.loss(output, y).backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    module.zero_grad()


def test_the_captured_graph_has_a_cost_for_every_operation_and_counts_the_parameters(small):
    graph = small.graph
    assert graph.name == small.name
    assert np.isfinite(graph.costs).all()
    assert (graph.costs > 0).all()
    assert graph.resident_bytes >= 4 * sum(parameter.numel() for parameter in small.module.parameters())


def test_the_network_and_its_loss_are_one_module():
    loaded = rx.models.load("mlp", batch=4)
    x, y = loaded.args
    network = loaded.module.get_submodule("model")
    assert torch.equal(loaded.module(x, y), torch.nn.functional.cross_entropy(network(x), y))
