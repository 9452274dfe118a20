"""Dropout without a mask: drawn again from the generator's state, it is the mask that was drawn first."""

import pytest
import torch
from torch import nn

import remat_explorer as rx
from remat_explorer.capture.implementations import dropout
from remat_explorer.capture.implementations.chunks import CHUNK
from remat_explorer.checker import replay
from remat_explorer.plan import Compute, Plan
from remat_explorer.runtime.comparison import compare
from tests.capture.implementations.nets import ROADS, Classifier, Runner, plan_by, preferring
from tests.capture.implementations.numerics import DEVICES, FORMATS, random, same_bits, with_special, workspace

aten = torch.ops.aten

SCALE = 1 / 0.7
SETTINGS = [
    ((1,), torch.float32, FORMATS[0], "cpu"),
    ((CHUNK - 1,), torch.float64, FORMATS[0], "cpu"),
    ((3, 5, 4, 6), torch.float64, FORMATS[1], "cpu"),
    ((2, 3, 200, 100), torch.float32, FORMATS[1], "cpu"),
    pytest.param((20_001,), torch.float64, FORMATS[0], "cuda", marks=DEVICES[1].marks),
    pytest.param((6, 5, 40, 30), torch.float32, FORMATS[0], "cuda", marks=DEVICES[1].marks),
]


@pytest.mark.parametrize(("shape", "dtype", "form", "device"), SETTINGS)
def test_the_mask_drawn_again_gives_the_gradient_of_pytorch_bit_for_bit(shape, dtype, form, device):
    states, strewn = (torch, with_special) if device == "cpu" else (torch.cuda, torch.clone)
    x = strewn(random(*shape, dtype=dtype, form=form)).to(device)
    g = strewn(random(*shape, dtype=dtype, seed=1, form=form).neg_()).to(device)
    torch.manual_seed(5)
    torch.rand(3, device=device)  # not at the beginning of the sequence
    before = states.get_rng_state()
    y, mask = aten.native_dropout(x, 0.3, True)
    after = states.get_rng_state()
    states.set_rng_state(before)
    found, state = dropout.dropout_with_state(x, 0.3, True)
    assert same_bits(found, y)
    assert torch.equal(states.get_rng_state(), after)
    torch.rand(100, device=device)
    now = states.get_rng_state()
    expected = aten.native_dropout_backward(g, mask, SCALE)
    assert same_bits(dropout.dropout_gradient_drawn_again(g, state, 0.3, SCALE), expected)
    over = g.clone()
    assert dropout.dropout_gradient_drawn_again_in_place(over, state, 0.3, SCALE) is over
    assert same_bits(over, expected)
    assert torch.equal(states.get_rng_state(), now)


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


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(net, "exact")


def test_any_mixture_of_kept_and_redrawn_masks_leaves_what_plain_pytorch_leaves(runner):
    graph = runner.graph
    drops = [k for k, n in enumerate(graph.operations) if n.implementations[-1].name == "with state"]
    assert len(drops) == 2
    chosen = [preferring(graph, *names) for names in (("with state", "drawn again"), ("drawn again",), ("with state",))]
    readers = {j for v in graph.outputs(drops[0], 2) for j in graph.readers[v]}
    chosen.append(lambda k, n: 1 if k == drops[0] or k in readers else chosen[0](k, n))
    for plan in (plan_by(graph, choose) for choose in chosen):
        replay(plan)
        for road in ROADS:
            assert compare(runner.by(plan, road), runner.reference, runner.initial).equal, road


def test_a_dropout_run_twice_makes_the_same_state(runner):
    graph = runner.graph
    choose = preferring(graph, "with state", "drawn again")
    order = [(0, k, choose(k, len(graph.operations[k].implementations))) for k in map(int, graph.mandatory)]
    names = [graph.operations[k].implementations[code - 1].name for _, k, code in order]
    drop = next(k for k, n in enumerate(graph.operations) if n.implementations[-1].name == "with state")
    redrawn = [i for i, name in enumerate(names) if name == "drawn again"]
    assert min(i for i in redrawn if i > drop) < redrawn[-1]
    again = Plan.from_sequence(graph, [*order[: redrawn[-1]], order[drop], *order[redrawn[-1] :]])
    replay(again)
    assert [s.operation for s in again.statements if isinstance(s, Compute)].count(drop) == 2
    for road in ROADS:
        assert compare(runner.by(again, road), runner.reference, runner.initial).equal, road


def test_small_masks_are_kept():
    model = Classifier(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8))
    args = torch.randn(10, 8), torch.randint(0, 8, (10,))
    assert not rx.capture(model, args, implementations=["replay"]).has_choices
