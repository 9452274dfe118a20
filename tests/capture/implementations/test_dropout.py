"""Dropout without a mask: drawn again from the generator's state, it is the mask that was drawn first."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture import trace
from remat_explorer.capture.implementations import dropout
from remat_explorer.capture.implementations.chunks import CHUNK
from remat_explorer.checker import replay
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.comparison import compare
from tests.capture.implementations.nets import NETS, Classifier, plan_by, preferring
from tests.capture.implementations.numerics import FORMATS, random, relative, same_bits, with_special, workspace
from tests.capture.implementations.runner import ROADS, Runner, measured

aten = torch.ops.aten

SCALE = 1 / 0.7


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 4, 6), (CHUNK - 1,), (2, 3, 200, 100)])
def test_the_mask_drawn_again_gives_the_gradient_of_pytorch_bit_for_bit(shape, dtype, form):
    x = with_special(random(*shape, dtype=dtype, form=form))
    g = with_special(random(*shape, dtype=dtype, seed=1, form=form).neg_())
    torch.manual_seed(5)
    torch.rand(3)  # not at the beginning of the sequence
    before = torch.get_rng_state()
    y, mask = aten.native_dropout(x, 0.3, True)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    found, state = dropout.dropout_with_state(x, 0.3, True)
    assert same_bits(found, y)
    assert torch.equal(state, before)
    assert torch.equal(torch.get_rng_state(), after)
    torch.rand(100)
    now = torch.get_rng_state()
    expected = aten.native_dropout_backward(g, mask, SCALE)
    assert same_bits(dropout.dropout_gradient_drawn_again(g, state, 0.3, SCALE), expected)
    over = g.clone()
    assert dropout.dropout_gradient_drawn_again_in_place(over, state, 0.3, SCALE) is over
    assert same_bits(over, expected)
    assert torch.equal(torch.get_rng_state(), now)


def test_the_gradient_is_that_of_float64():
    x, g = random(30_000), random(30_000, seed=1)
    mask_of_ones, state = dropout.dropout_with_state(torch.ones_like(x), 0.3, True)
    exact = g.double() * (mask_of_ones != 0) / 0.7
    assert relative(dropout.dropout_gradient_drawn_again(g, state, 0.3, SCALE), exact) < 1e-7


def test_the_generator_stays_as_it_is_where_drawing_fails(monkeypatch):
    def fails(*arguments, **settings):
        raise RuntimeError("no memory")

    state = torch.get_rng_state()
    torch.rand(1)
    now = torch.get_rng_state()
    monkeypatch.setattr(torch, "empty_like", fails)
    with pytest.raises(RuntimeError, match="no memory"):
        dropout._drawn_again(torch.ones(3), state, 0.3)
    assert torch.equal(torch.get_rng_state(), now)


def test_drawing_again_needs_room_for_numbers_of_the_mask_and_keeps_none():
    g = random(16, CHUNK)
    state = torch.get_rng_state()
    one_chunk = 4 * CHUNK + 2 * len(state)
    of_mask = 5 * g.numel()  # a byte an entry, and the 32-bit numbers from which some builds of torch make it
    assert workspace(dropout.dropout_gradient_drawn_again, g, state, 0.3, SCALE) <= of_mask + one_chunk
    over = workspace(dropout.dropout_gradient_drawn_again_in_place, g, state, 0.3, SCALE, taken_over=g.nbytes)
    assert over <= of_mask + one_chunk


def net() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Two dropouts with other random numbers between and after them."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(64, 128), nn.Dropout(0.3), nn.Tanh(), nn.Linear(128, 128), nn.Dropout(0.5))
    return Classifier(body, nn.Linear(128, 10)), (torch.randn(90, 64), torch.randint(0, 10, (90,)))


@pytest.mark.parametrize("road", ROADS)
def test_any_mixture_of_kept_and_redrawn_masks_leaves_what_plain_pytorch_leaves(road, monkeypatch):
    monkeypatch.setitem(NETS, "drops", net)
    runner = Runner("drops", "exact")
    graph = runner.graph
    drops = [k for k, n in enumerate(graph.operations) if n.implementations[-1].name == "with state"]
    assert len(drops) == 2
    chosen = [("with state", "drawn again"), ("drawn again",), ("with state",)]
    plans = [plan_by(graph, preferring(graph, *names)) for names in chosen]
    mixed = preferring(graph, "with state", "drawn again")
    readers = {j for v in graph.outputs(drops[0], 2) for j in graph.readers[v]}
    plans.append(plan_by(graph, lambda k, n: 1 if k == drops[0] or k in readers else mixed(k, n)))
    for plan in plans:
        replay(plan)
        assert compare(runner.by(plan, road), runner.reference, runner.initial).equal


@pytest.mark.parametrize("road", ROADS)
def test_a_dropout_run_twice_makes_the_same_state(road, monkeypatch):
    monkeypatch.setitem(NETS, "drops", net)
    runner = Runner("drops", "exact")
    graph = runner.graph
    choose = preferring(graph, "with state", "drawn again")
    order = [(0, k, choose(k, len(graph.operations[k].implementations))) for k in map(int, graph.mandatory)]
    drop = next(k for k, n in enumerate(graph.operations) if n.implementations[-1].name == "with state")
    redrawn = next(i for i, (_, k, code) in enumerate(order) if _name(graph, k, code) == "drawn again" and i > drop)
    last = max(i for i, (_, k, code) in enumerate(order) if _name(graph, k, code) == "drawn again")
    assert redrawn < last
    again = Plan.from_sequence(graph, [*order[:last], order[drop], *order[last:]])
    replay(again)
    assert [s.operation for s in again.statements if isinstance(s, Compute)].count(drop) == 2
    assert compare(runner.by(again, road), runner.reference, runner.initial).equal


def test_a_plan_that_draws_again_has_no_mask_in_memory_and_the_peak_that_it_says():
    model, args = net()
    graph = rx.profile(rx.capture(model, args, implementations=["replay"]), model, args, repeats=1)
    plans = [plan_by(graph, preferring(graph, *names)) for names in ((), ("with state", "drawn again"))]
    kept = [sum(graph.values[v].bytes for k in (1, 3) for v in graph.outputs(k, code)) for code in (1, 2)]
    assert kept[1] < kept[0]
    program = trace(model, args, options=graph.options)
    for plan in plans:
        assert abs(measured(plan, program, model, args) - plan.peak) <= 0.001 * plan.peak


def test_small_masks_are_kept():
    model = Classifier(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8))
    args = torch.randn(10, 8), torch.randint(0, 8, (10,))
    assert not rx.capture(model, args, implementations=["replay"]).has_choices


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(20_001,), (6, 5, 40, 30)])
def test_on_a_gpu_the_mask_is_the_first_one_too(shape, dtype):
    x, g = random(*shape, dtype=dtype).cuda(), random(*shape, dtype=dtype, seed=1).cuda()
    before = torch.cuda.get_rng_state()
    y, mask = aten.native_dropout(x, 0.3, True)
    torch.cuda.set_rng_state(before)
    found, state = dropout.dropout_with_state(x, 0.3, True)
    torch.rand(100, device="cuda")
    now = torch.cuda.get_rng_state()
    assert same_bits(found, y)
    expected = aten.native_dropout_backward(g, mask, SCALE)
    assert same_bits(dropout.dropout_gradient_drawn_again(g, state, 0.3, SCALE), expected)
    assert same_bits(dropout.dropout_gradient_drawn_again_in_place(g.clone(), state, 0.3, SCALE), expected)
    assert torch.equal(torch.cuda.get_rng_state(), now)


def _name(graph, k: int, code: int) -> str:
    return graph.operations[k].implementations[code - 1].name
