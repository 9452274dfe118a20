"""Multilayer perceptrons in parts, and the last product with cross-entropy: steps without hidden features or logits."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.implementations import cross_entropy
from remat_explorer.capture.implementations.chunks import CHUNK
from remat_explorer.capture.implementations.cross_entropy import MEAN, SUM
from remat_explorer.capture.implementations.perceptrons import PARTS
from remat_explorer.capture_options import CaptureOptions
from remat_explorer.checker import replay
from remat_explorer.plan import Compute
from tests.capture.implementations import nets
from tests.capture.implementations.nets import ROADS, Net, Runner, measured, plan_by, preferring, ways_of
from tests.capture.implementations.numerics import random, relative, workspace
from tests.runtime.kinds_of_models import Made
from tests.thorough import thorough_but

WIDTH, HIDDEN, TOKENS = 16, 96, (4, 40)
WAYS = [f"of the perceptron, in {parts} parts" for parts in PARTS]
REST = "of the perceptron's backward pass", "left out"


def gated() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    gate, up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
    return Made(forward, norm=nn.RMSNorm(WIDTH), gate=gate, up=up, down=nn.Linear(HIDDEN, WIDTH, bias=False))


def plain(activation: nn.Module) -> nn.Module:
    up, down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
    return Made(lambda s, x: x + s.layers(x), layers=nn.Sequential(nn.LayerNorm(WIDTH), up, activation, down))


BLOCKS = {"swiglu": gated, "gelu": lambda: plain(nn.GELU(approximate="tanh")), "relu": lambda: plain(nn.ReLU())}


def squared(model: nn.Module) -> nn.Module:
    return Made(lambda s, x: s.model(x).square().mean(), model=model)


def net(block: str, dtype: torch.dtype = torch.float32) -> Net:
    torch.manual_seed(0)
    model = squared(nn.Sequential(*(BLOCKS[block]() for _ in range(2))))
    return model.to(dtype), (torch.randn(*TOKENS, WIDTH, dtype=dtype),)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("block", thorough_but(BLOCKS, "gelu", "swiglu"))
def test_hidden_features_are_left_out_and_the_peak_is_the_predicted_one(block, way):
    model, args = net(block)
    program = trace(model, args, options=CaptureOptions(implementations=("chunks",)))
    graph = rx.profile(program.graph, model, args, repeats=1)
    plan = plan_by(graph, preferring(graph, way, *REST))
    replay(plan)
    used = ways_of(plan)
    assert used.count(way) == 4  # the forward result and the first of the backward pass, twice
    hidden = 4 * TOKENS[0] * TOKENS[1] * HIDDEN
    for s in plan.statements:
        if isinstance(s, Compute):
            assert hidden not in [graph.values[v].bytes for v in graph.outputs(s.operation, s.implementation)]
    assert plan.peak < plan_by(graph, lambda k, count: 1).peak - hidden
    assert abs(measured(plan, program, model, args) - plan.peak) <= 0.001 * plan.peak


@pytest.mark.parametrize("block", ["swiglu", "relu"])
def test_every_choice_has_the_gradients_of_plain_pytorch(block):
    runner = Runner(lambda: net(block), ["chunks"])
    plans = [plan_by(runner.graph, preferring(runner.graph, way, *REST)) for way in WAYS]
    for plan, road in product((*plans, *runner.plans(2)), ROADS):
        replay(plan)
        for key, gradient in runner.by(plan, road).outcome.gradients.items():
            assert relative(gradient, runner.reference.outcome.gradients[key]) <= 1e-5, road


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gradients_are_as_near_to_the_exact_ones_as_those_of_plain_pytorch(dtype):
    runner = Runner(lambda: net("swiglu", dtype), ["chunks"])
    model, args = net("swiglu", dtype)
    model.double()(*(x.double() for x in args)).backward()
    exact = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    for way in WAYS:
        found = runner.by(plan_by(runner.graph, preferring(runner.graph, way, *REST)), "trained").outcome.gradients
        for name, gradient in runner.reference.outcome.gradients.items():
            assert relative(found[name], exact[name]) <= 2 * relative(gradient, exact[name]) + 1e-13


def test_trained_in_the_smallest_memory_it_needs_less_than_without():
    model, args = net("swiglu")
    graph = rx.profile(rx.capture(model, args, implementations=["chunks"]), model, args, repeats=1)
    plain, least = (rx.minimum_budget(graph, 1.0, kinds) for kinds in ("exact", "all"))
    assert least.known_feasible < plain.lower_bound
    found = rx.measure(nets.first_of_monet(graph, least.known_feasible), model, args, repeats=1)
    assert found.peak == found.predicted_peak <= least.known_feasible
    assert found.eager is not None
    assert found.eager.comparison.gradient_difference <= 1e-5


@pytest.mark.parametrize(
    ("hidden", "forward"),
    [
        (HIDDEN, lambda s, x: (lambda y: s.down(y.relu()) + y.mean())(s.up(x))),  # something else reads hidden features
        (HIDDEN, lambda s, x: s.down(functional.dropout(s.up(x).relu(), 0.2))),  # random numbers are not in parts
        (WIDTH, lambda s, x: s.down(functional.gelu(s.up(x)))),  # no more hidden features than channels
    ],
)
def test_what_cannot_be_had_in_parts_or_would_save_nothing_stays_as_it_is(hidden, forward):
    model = squared(Made(forward, up=nn.Linear(WIDTH, hidden), down=nn.Linear(hidden, WIDTH)))
    graph = rx.capture(model, (torch.randn(*TOKENS, WIDTH),), implementations=["chunks"])
    assert all(len(node.implementations) == 1 for node in graph.operations)


def test_of_layers_in_a_row_the_widest_are_hidden():
    torch.manual_seed(0)
    layers = nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 4)
    runner = Runner(lambda: (squared(nn.Sequential(*layers)), (torch.randn(40, 8),)), ["chunks"])
    hidden = [n.name for n in runner.graph.operations if "left out" in [way.name for way in n.implementations]]
    assert hidden == ["2 linear + tanh", "4 mm", "3 tanh_backward"]
    for plan in runner.plans():
        replay(plan)
        for key, gradient in runner.by(plan, "trained").outcome.gradients.items():
            assert relative(gradient, runner.reference.outcome.gradients[key]) <= 1e-5


def test_cross_entropy_needs_room_for_a_few_rows_only():
    logits, target = random(500, 2000), torch.zeros(500, dtype=torch.int64)
    sums = cross_entropy.log_sum_exp(logits)
    few = 3 * 4 * CHUNK
    assert workspace(cross_entropy.log_sum_exp, logits) < few
    assert workspace(cross_entropy.loss_from_log_sum_exp, logits, target, sums, 1, -100) < few
    arguments = torch.ones(()), logits, target, sums, torch.tensor(500.0), 1, -100
    assert workspace(cross_entropy.cross_entropy_gradient, *arguments) < few
    assert workspace(cross_entropy.cross_entropy_gradient_in_place, *arguments, taken_over=logits.nbytes) < few


TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}
ROWS, FEATURES, CLASSES = 48, 8, 400


class Head(nn.Module):
    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CLASSES, FEATURES)
        self.hidden = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, CLASSES, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.hidden(self.tokens(tokens)).tanh())
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens, labels = (torch.randint(CLASSES, (2, ROWS // 2), generator=generator) for _ in range(2))
    labels[0, :5] = -100
    return tokens, labels


@pytest.mark.parametrize(
    ("chunk", "reduction", "ignored"), [(1, MEAN, -100), (5, MEAN, -100), (5, SUM, 3), (1000, SUM, 3)]
)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_loss_and_gradients_with_the_product_are_those_of_float64(dtype, reduction, ignored, chunk):
    x, weight = random(13, 6, dtype=dtype), random(17, 6, dtype=dtype, seed=1)
    target = torch.randint(17, (13,), generator=torch.Generator().manual_seed(1))
    target[9:] = ignored
    wide = [tensor.to(torch.float64, copy=True).requires_grad_() for tensor in (x, weight)]
    name = "mean" if reduction == MEAN else "sum"
    exact = functional.cross_entropy(wide[0] @ wide[1].T, target, reduction=name, ignore_index=ignored)
    of_x, of_weight = torch.autograd.grad(exact, wide, torch.tensor(1.5, dtype=torch.float64))
    loss_type = torch.float32 if dtype == torch.bfloat16 else dtype
    sums = cross_entropy.log_sum_exp_of_product(x, weight, loss_type, chunk)
    assert relative(sums, torch.logsumexp(wide[0] @ wide[1].T, 1)) <= TOLERANCE[dtype]
    loss, count = cross_entropy.loss_of_product(x, weight, target, sums, reduction, ignored)
    assert abs(loss.item() - exact.item()) <= 10 * TOLERANCE[dtype]
    assert count == (target != ignored).sum()
    given = torch.tensor(1.5, dtype=loss_type), x, weight, target, sums, count, reduction, ignored
    assert relative(cross_entropy.input_gradient_of_product(*given, chunk), of_x) <= TOLERANCE[dtype]
    assert relative(cross_entropy.weight_gradient_of_product(*given, chunk), of_weight) <= TOLERANCE[dtype]


@pytest.mark.parametrize(("dtype", "tied"), [(torch.float32, False), (torch.bfloat16, True)])
def test_monet_trains_without_logits_in_less_memory_than_they_take(dtype, tied):
    torch.manual_seed(0)
    model, args = Head(tied).to(dtype), inputs()
    graph = rx.profile(rx.capture(model, args, implementations=["cross-entropy"]), model, args, repeats=1)
    plain, least = (rx.minimum_budget(graph, implementations=kinds) for kinds in ("exact", "all"))
    assert least.known_feasible < plain.lower_bound - 4 * ROWS * CLASSES
    solution = nets.first_of_monet(graph, least.known_feasible)
    assert solution.plan is not None
    replay(solution.plan)
    used = ways_of(solution.plan)
    assert used.count("left out") >= 3
    assert used.count("with the product, in 8 parts") + used.count("with the product, in 64 parts") >= 3
    found = rx.measure(solution, model, args, repeats=1)
    assert found.peak <= found.predicted_peak * 1.01
    assert found.eager is not None
    differences = found.eager.comparison.loss_difference, found.eager.comparison.gradient_difference
    assert max(differences) <= (1e-5 if dtype == torch.float32 else 2e-2)


def test_logits_that_something_else_reads_stay():
    class Curious(Head):
        def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = self.head(self.tokens(tokens)).flatten(0, 1)
            return functional.cross_entropy(logits, labels.flatten()) + logits.square().mean()

    graph = rx.capture(Curious(), inputs(), implementations=["cross-entropy"])
    names = {way.name for node in graph.operations for way in node.implementations}
    assert "from log sum exp" in names
    assert not any("product" in name for name in names)
