"""Cross-entropy from one number a row, and with the product before it, in chunks, beside that of float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.implementations import cross_entropy
from remat_explorer.capture.implementations.chunks import CHUNK
from remat_explorer.capture.implementations.cross_entropy import MEAN, SUM
from remat_explorer.checker import replay
from remat_explorer.plan import Compute, Plan
from tests.capture.implementations.numerics import random, relative, same_bits, workspace

aten = torch.ops.aten

OF_LOGITS = {torch.float32: 1e-6, torch.float64: 1e-14}
REDUCTIONS = {"mean": cross_entropy.MEAN, "sum": cross_entropy.SUM}


@pytest.mark.parametrize("ignored", [-100, 3])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", OF_LOGITS)
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (13, 7), (300, 1000)])
def test_cross_entropy_has_loss_and_gradient_of_float64(rows, classes, dtype, reduction, ignored):
    logits = 5 * random(rows, classes, dtype=dtype) + 20
    target = torch.randint(0, classes, (rows,), generator=torch.Generator().manual_seed(1))
    target[rows // 2 + 1 :] = ignored
    wide = logits.to(torch.float64, copy=True).requires_grad_()
    exact = functional.cross_entropy(wide, target, reduction=reduction, ignore_index=ignored)
    g = torch.tensor(1.5, dtype=dtype)
    (slope,) = torch.autograd.grad(exact, wide, g.double())
    sums = cross_entropy.log_sum_exp(logits)
    assert relative(sums, torch.logsumexp(logits.double(), 1)) <= OF_LOGITS[dtype]
    number = REDUCTIONS[reduction]
    loss, count = cross_entropy.loss_from_log_sum_exp(logits, target, sums, number, ignored)
    assert abs(loss.item() - exact.item()) <= OF_LOGITS[dtype] * 40 * (1 if reduction == "mean" else rows)
    logarithms = torch.log_softmax(logits, 1)
    assert same_bits(count, aten.nll_loss_forward(logarithms, target, None, number, ignored)[1])
    arguments = target, sums, count, number, ignored
    found = cross_entropy.cross_entropy_gradient(g, logits, *arguments)
    assert relative(found, slope) <= 20 * OF_LOGITS[dtype]
    over = logits.clone()
    assert cross_entropy.cross_entropy_gradient_in_place(g, over, *arguments) is over
    assert same_bits(over, found)


def test_infinite_logits_spoil_their_row_alone():
    logits, target = random(4, 5), torch.zeros(4, dtype=torch.int64)
    logits[1, 2], logits[2, 3] = float("inf"), -float("inf")
    sums = cross_entropy.log_sum_exp(logits)
    loss, count = cross_entropy.loss_from_log_sum_exp(logits, target, sums, cross_entropy.MEAN, -100)
    found = cross_entropy.cross_entropy_gradient(torch.ones(()), logits, target, sums, count, cross_entropy.MEAN, -100)
    assert [bool(row.isfinite().all()) for row in found] == [True, False, True, True]
    assert found[2, 3] == 0
    assert not loss.isfinite()


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
ROWS, WIDTH, CLASSES = 48, 8, 400


class Head(nn.Module):
    """A hidden layer, a head without bias, and a loss in float32."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(CLASSES, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)
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


@pytest.mark.parametrize("chunk", [1, 5, 1000])
@pytest.mark.parametrize(("reduction", "ignored"), [(MEAN, -100), (SUM, 3)])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_loss_and_gradients_are_those_of_float64(dtype, reduction, ignored, chunk):
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
    solution = rx.solve(graph, least.known_feasible, strategy="monet", time_limit=3)
    assert solution.plan is not None
    replay(solution.plan)
    used = [graph.operations[k].implementations[way - 1].name for k, way in ways(solution.plan)]
    assert used.count("left out") >= 3
    assert used.count("with the product, in 8 parts") + used.count("with the product, in 64 parts") >= 3
    found = rx.measure(solution, model, args, repeats=1)
    assert found.peak <= found.predicted_peak * 1.01
    assert found.eager is not None
    assert found.eager.comparison.loss_difference <= (1e-5 if dtype == torch.float32 else 2e-2)
    assert found.eager.comparison.gradient_difference <= (1e-5 if dtype == torch.float32 else 2e-2)


def ways(plan: Plan) -> list[tuple[int, int]]:
    """Operation and implementation of each computation."""
    return [(run.operation, run.implementation) for run in plan.statements if isinstance(run, Compute)]


def test_logits_that_something_else_reads_stay():
    class Curious(Head):
        def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = self.head(self.tokens(tokens)).flatten(0, 1)
            return functional.cross_entropy(logits, labels.flatten()) + logits.square().mean()

    graph = rx.capture(Curious(), inputs(), implementations=["cross-entropy"])
    names = {way.name for node in graph.operations for way in node.implementations}
    assert "from log sum exp" in names
    assert not any("product" in name for name in names)
