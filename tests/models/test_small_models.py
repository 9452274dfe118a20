"""Every model of the zoo at a small size: it loads and trains, its graph is one for the solvers, strategies answer."""

import numpy as np
import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import ModelError, SolverError, UnknownNameError
from remat_explorer.models import LoadedModel
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import STRATEGIES
from tests.models.small_models import LARGE, SMALL
from tests.thorough import thorough_but

SECONDS = 0.3  # a linear program of a large graph is not solved in that time, and its method has to say so

OUTPUTS = {"fcn8": (1, 19, 40, 40), "segnet": (1, 19, 16, 16), "unet": (1, 19, 16, 16), "unet_monet": (1, 1, 32, 32)}
OUTPUTS |= {"gpt2": (1, 16, 50257), "bert": (1, 16, 30522), "chain": (1, 256), "mlp": (1, 10), "residual_net": (1, 10)}

# Operations of these networks after a contraction by unary fusion, gradient leaves and fan-out sums only.
OPERATIONS = {"bert": 569, "densenet161": 1139, "googlenet": 414, "gpt2": 581, "mobilenet_v1": 170, "mobilenet_v2": 360}
OPERATIONS |= {"resnet50": 356, "unet": 106, "vgg16": 82}

# A chain, and skips over the whole network. Of attention, the methods schedule the captured graph of gpt2 in
# tests/solvers/methods. What is another one with more layers is left out.
KINDS = ("chain", "unet")

# Models that take seconds, and have the layers of others: dense blocks join their inputs as a U-Net does.
FURTHER = {"bert", "densenet121", "densenet161", "fcn8", "googlenet", "mobilenet_v2", "resnet50", "vgg19", "vit"}
QUICK = sorted(SMALL.keys() - FURTHER - {"gpt2", "unet_monet"})  # gpt2: see KINDS


@pytest.fixture(scope="session")
def small(request) -> LoadedModel:
    """A model with a batch of one example, so small that a CPU runs a step in a second."""
    return rx.models.load(request.param, batch=1, **SMALL[request.param])


def test_every_model_is_tried():
    assert sorted({*SMALL, *LARGE}) == list(rx.models.names())


@pytest.mark.parametrize("small", thorough_but(sorted(SMALL), *QUICK), indirect=True)
def test_a_step_gives_every_parameter_a_finite_gradient(small):
    module, (x, y) = small.module, small.args
    module.zero_grad()
    output = module.model(x)
    assert output.shape == OUTPUTS.get(small.name, (1, 1000))
    module.loss(output, y).backward()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    module.zero_grad()


@pytest.mark.parametrize("small", thorough_but(sorted(SMALL), *QUICK), indirect=True)
def test_the_captured_graph_is_small_has_a_cost_for_every_operation_and_counts_the_parameters(small):
    graph = small.graph
    assert graph.name == small.name
    assert np.isfinite(graph.costs).all()
    assert (graph.costs > 0).all()
    assert graph.resident_bytes >= 4 * sum(parameter.numel() for parameter in small.shapes.parameters())
    assert graph.n <= OPERATIONS.get(small.name, graph.n)


@pytest.mark.parametrize("small", thorough_but(sorted(SMALL.keys() - {"densenet161", "vgg19"}), *KINDS), indirect=True)
def test_what_a_strategy_gives_fits_and_where_it_gives_nothing_it_says_why(small):
    graph = small.graph
    smallest = rx.minimum_budget(graph, 1.0)
    budget = (smallest.known_feasible + smallest.checkpoint_all_peak) // 2
    scheduled, refused = [], {}
    for name in STRATEGIES:
        try:
            solution = rx.solve(graph, budget, name, time_limit=SECONDS)
            if name == "optimal" and solution.schedule is None:  # a slow machine
                solution = rx.solve(graph, budget, name, time_limit=60.0)
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


def test_loading_twice_gives_the_same_and_leaves_the_random_state_alone():
    state = torch.get_rng_state()
    first, second = (rx.models.load("residual_net", batch=1, image=32) for _ in range(2))
    tensors = ([*net.module.parameters(), *net.args] for net in (first, second))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*tensors, strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert first.graph.sha256 == second.graph.sha256


def test_images_may_be_rectangles_and_sequences_shorter_than_the_table_of_positions():
    x, y = rx.models.load("unet", batch=1, image=(64, 96)).args
    assert (x.shape, y.shape) == ((1, 3, 64, 96), (1, 32, 48))
    module = rx.models.load("vit", batch=1, image=(32, 48)).shapes
    assert module.get_parameter("model.positions").shape == (1, 1 + 2 * 3, 768)
    loaded = rx.models.load("bert", batch=2, sequence=24)
    assert loaded.sequence == 24
    assert [tokens.shape for tokens in loaded.args] == [(2, 24), (2, 24)]


def test_an_unknown_model_or_precision_lists_near_ones():
    with pytest.raises(UnknownNameError, match="unknown model 'vg16'; did you mean 'vgg16'"):
        rx.models.load("vg16")
    with pytest.raises(UnknownNameError, match="unknown precision 'bfloat17'; did you mean 'bfloat16'"):
        rx.models.load("gpt2", precision="bfloat17")


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("vgg16", {"batch": 0}, "batch of 'vgg16' is 0; give a whole number of at least 1"),
        ("vgg16", {"image": 16}, "image size of 'vgg16' is 16; give pixels, .* at least 32"),
        ("unet", {"image": (64, 70)}, r"image size of 'unet' is \(64, 70\); .* a multiple of 16"),
        ("fcn8", {"image": 48}, "image size of 'fcn8' is 48; .* at least 32, a multiple of 32"),
        ("gpt2", {"image": 224}, "'gpt2' takes no images, but the image size 224 was given"),
        ("vit", {"sequence": 16}, "'vit' takes no sequences, but 16 tokens were given"),
        ("gpt2", {"sequence": 1025}, "sequence of 'gpt2' is 1025; give a whole number of tokens from 1 to 1024"),
        ("gpt2", {"layers": 4}, "layers of 'gpt2' cannot be chosen, but 4 were asked for"),
        ("llama3_8b", {"layers": 0}, "layers of 'llama3_8b' are 0; give a whole number of at least 1"),
        ("llama3_8b", {"sequence": 0}, "sequence of 'llama3_8b' is 0; give a whole number of tokens of at least 1"),
        ("vit", {"tied": True}, "'vit' has no head that may be tied or not, but tied=True was given"),
    ],
)
def test_sizes_that_do_not_suit_are_quoted(name, sizes, message):
    with pytest.raises(ModelError, match=message):
        rx.models.load(name, **sizes)
