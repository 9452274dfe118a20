"""Every model of the zoo at a small size: it trains, its graph is one for the solvers, every strategy answers.

In one file, since a graph is captured once for all tests of a file, which for the largest takes half a minute.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import SolverError
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.solution import Status
from tests.models.small_models import LARGE, SMALL
from tests.thorough import thorough_but

SECONDS = 0.3  # a linear program of a large graph is not solved in that time, and its method has to say so

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

# Operations of these networks after a contraction by unary fusion, gradient leaves and fan-out sums only.
OPERATIONS = {
    "bert": 569,
    "densenet161": 1139,
    "googlenet": 414,
    "gpt2": 581,
    "mobilenet_v1": 170,
    "mobilenet_v2": 360,
    "resnet50": 356,
    "unet": 106,
    "vgg16": 82,
}

# Models that are another one with more layers, on which strategies are tried.
ALIKE = {"densenet161": "densenet121", "vgg19": "vgg16"}

# One model of each kind: a chain, skips over blocks and over the whole network. Of attention, the methods schedule the
# captured graph of gpt2 in tests/solvers/methods.
KINDS = ("chain", "mlp", "vgg16", "resnet18", "unet")


# Captures of seconds, of models that have the layers of others: dense blocks join their inputs as GoogLeNet does.
FURTHER = {"bert", "densenet121", "densenet161", "mobilenet_v2", "resnet50", "vit"}


def test_every_model_is_tried():
    assert sorted({*SMALL, *LARGE}) == list(rx.models.names())


@pytest.mark.parametrize(
    "small",
    thorough_but(sorted(SMALL), *sorted(SMALL.keys() - {"bert", "densenet161", "fcn8", "vgg19"})),
    indirect=True,
)
def test_a_step_gives_every_parameter_a_finite_gradient(small):
    module, (x, y) = small.module, small.args
    module.zero_grad()
    output = module.model(x)
    assert output.shape == OUTPUTS.get(small.name, (1, 1000))
    module.loss(output, y).backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    module.zero_grad()


@pytest.mark.parametrize("small", thorough_but(sorted(SMALL), *sorted(SMALL.keys() - FURTHER)), indirect=True)
def test_the_captured_graph_is_small_has_a_cost_for_every_operation_and_counts_the_parameters(small):
    graph = small.graph
    assert graph.name == small.name
    assert np.isfinite(graph.costs).all()
    assert (graph.costs > 0).all()
    assert graph.resident_bytes >= 4 * sum(parameter.numel() for parameter in small.shapes.parameters())
    assert graph.n <= OPERATIONS.get(small.name, graph.n)


@pytest.mark.parametrize("small", thorough_but(sorted(SMALL), *KINDS), indirect=True)
def test_what_a_strategy_gives_fits_and_where_it_gives_nothing_it_says_why(small):
    if small.name in ALIKE:
        pytest.skip(f"{ALIKE[small.name]} is built alike")
    graph = small.graph
    smallest = rx.minimum_budget(graph, 1.0)
    budget = (smallest.known_feasible + smallest.checkpoint_all_peak) // 2
    scheduled, refused = [], {}
    for name in STRATEGIES:
        try:
            solution = rx.solve(graph, budget, name, time_limit=SECONDS)
            if name == "optimal" and solution.schedule is None:  # a slow machine
                solution = rx.solve(graph, budget, name, time_limit=30 * SECONDS)
        except SolverError as refusal:
            refused[name] = str(refusal)
            continue
        if solution.schedule is None:
            assert solution.status in (Status.INFEASIBLE, Status.UNKNOWN), name
            continue
        checked = rx.check(graph, solution.schedule.R, solution.schedule.S, budget)
        assert (checked.cost, checked.peak) == (solution.cost, solution.peak), name
        assert checked.peak <= solution.budget == budget, name
        scheduled.append(name)
    assert "optimal" in scheduled
    assert len(scheduled) > 2
    for reason in refused.values():
        assert graph.name in reason
        assert ": use '" in reason or "; use " in reason


def test_the_network_and_its_loss_are_one_module():
    loaded = rx.models.load("mlp", batch=4)
    x, y = loaded.args
    network = loaded.module.get_submodule("model")
    assert torch.equal(loaded.module(x, y), torch.nn.functional.cross_entropy(network(x), y))
