"""Peers give the gradients of plain PyTorch, are measured as our plans are, and leave the model as it was."""

import copy
import itertools
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from remat_explorer.models import gpt2
from remat_explorer.models.densenet import DenseBlock
from remat_explorer.runtime.peers import PeerMeasurement
from tests.runtime.kinds_of_models import KINDS, Case, Made, linear, x

BUDGETS = (0.5, 0.0)
Found = dict[str, PeerMeasurement]


def compared(case: Case, budgets: tuple[float, ...] = BUDGETS, **options: Any) -> Found:
    """Measurements by title."""
    found = rx.compare_peers(
        case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1, budgets=budgets, **options
    )
    return {peer.title: peer for peer in found}


def residual() -> Case:
    loaded = rx.models.load("residual_net", batch=8, image=16)
    return Case(loaded.module, loaded.args)


def transformer() -> Case:
    sizes = {"VOCABULARY": 50, "POSITIONS": 16, "WIDTH": 16, "HEADS": 2, "LAYERS": 3}
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(gpt2, name, size)
        model = gpt2.GPT2()
    return Case(model, (torch.randint(50, (4, 16)),), loss=lambda logits: logits.square().mean())


CASES: dict[str, Callable[[], Case]] = {
    "residual": residual,
    "transformer": transformer,
    "chain": lambda: Case(nn.Sequential(*(part for _ in range(8) for part in (linear(), nn.Tanh()))), (x(4096, 8),)),
    "plain": lambda: Case(Made(lambda s, x: s.last(torch.tanh(s.l(x))), l=linear(), last=linear()), (x(64, 8),)),
}


@cache
def measured(name: str) -> Any:
    return compared(CASES[name]())


@pytest.mark.parametrize("name", CASES)
def test_every_peer_is_exact_and_the_peak_of_a_pytorch_budget_is_the_predicted_one(name):
    found = measured(name)
    ran = [peer for peer in found.values() if peer.problem is None]
    assert len(ran) >= 1 + len(BUDGETS)
    for peer in ran:
        assert peer.gradients_equal, peer
        assert peer.gradient_difference == 0
        assert peer.rng_equal, peer
        assert None not in (peer.seconds, peer.overhead, peer.peak)
    for title, peer in found.items():  # checkpoints update the buffers of batch normalization twice
        assert peer.problem or peer.buffers_equal is not (name == "residual" and title.startswith("checkpoint")), title
    for budget in BUDGETS:
        peer = found[f"pytorch-budget (budget {budget:g}, dp)"]
        assert peer.peak == pytest.approx(peer.predicted_peak, rel=1e-3)
        assert peer.plan is not None
        assert peer.predicted_overhead >= 1


def test_eager_has_the_peak_that_measuring_a_plan_gives_it():
    loaded = rx.models.load("residual_net", batch=8, image=16)
    solution = rx.solve(loaded.graph, "100%", strategy="checkpoint-all")
    eager = rx.measure(solution, loaded.module, loaded.args, device="cpu", repeats=1).eager
    assert eager is not None
    assert measured("residual")["eager"].peak == eager.peak


def saves_memory(found: Found, title: str) -> bool:
    return (found[title].peak or 0) < (found["eager"].peak or 0)


def test_blocks_and_segments_are_found_and_save_memory():
    chain, plain, transformer = (measured(name) for name in ("chain", "plain", "transformer"))
    segments = [f"checkpoint-sequential ({count} segments)" for count in (2, 3, 4)]
    assert list(measured("residual"))[:4] == ["eager", *segments[:2], "checkpoint-blocks (3 × ResidualBlock)"]
    assert saves_memory(transformer, "checkpoint-blocks (3 × GPT2Block)")
    assert saves_memory(chain, segments[2])
    assert chain["checkpoint-blocks"].problem.startswith("the model has no repeated blocks")
    assert str(plain["checkpoint-sequential"]) == (
        "checkpoint-sequential: the model has no nn.Sequential of several members"
    )
    assert plain["checkpoint-blocks"].peak is None


def test_a_layer_in_place_at_the_begin_of_a_checkpoint_is_named_and_dense_layers_may_share_a_growing_list():
    found = compared(Case(nn.Sequential(linear(), nn.ReLU(inplace=True), linear()), (x(),)), (0.0,))
    assert found["checkpoint-sequential (3 segments)"].problem == (
        "a layer in place right after the end of a checkpoint overwrites a tensor that the backward pass needs"
    )
    found = compared(Case(nn.Sequential(DenseBlock(3, 4, 2)), (x(2, 4, 6, 6),)), (0.0,))
    assert found["checkpoint-blocks (3 × DenseLayer)"].gradients_equal


@pytest.mark.parametrize("kind", ["shared submodules", "LSTM with dropout", "checkpoint inside", "data parallel"])
def test_the_model_and_the_random_state_are_left_as_they_were(kind):
    torch.manual_seed(0)
    case = KINDS[kind]()
    attributes = {name: dict(module.__dict__) for name, module in case.model.named_modules()}
    content = copy.deepcopy(case.model.state_dict())
    state = torch.get_rng_state()
    found = compared(case, (0.0,))
    assert all(peer.gradients_equal and peer.rng_equal for peer in found.values() if peer.problem is None)
    assert torch.equal(state, torch.get_rng_state())
    for name, module in case.model.named_modules():
        assert module.__dict__.keys() == attributes[name].keys()
        assert all(module.__dict__[key] is value for key, value in attributes[name].items())
    assert all(torch.equal(content[name], tensor) for name, tensor in case.model.state_dict().items())
    assert all(parameter.grad is None for parameter in case.model.parameters())


@pytest.mark.parametrize("ambient", [torch.no_grad, torch.inference_mode])
def test_peers_train_whatever_the_caller_has_switched_off(ambient):
    case = Case(nn.Sequential(linear(), nn.BatchNorm1d(8)), (x(),))
    with ambient():
        found = compared(case, (0.0,))
    assert all(peer.gradients_equal for peer in found.values() if peer.problem is None)


class Refusing(nn.Module):
    """A block that does not run when its forward is replaced."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.layer, self.error = linear(), error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "forward" in vars(self):
            raise self.error
        return self.layer(x)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "memory ran out"),
        (ValueError("no such thing.\nand more"), "it does not run: ValueError: no such thing"),
    ],
)
def test_a_peer_that_fails_says_why_and_the_others_go_on(error, problem):
    model = nn.Sequential(Refusing(error), Refusing(error))
    found = compared(Case(model, (x(),)), (0.0,))
    assert found["checkpoint-blocks (2 × Refusing)"].problem == problem
    assert found["pytorch-budget (budget 0, dp)"].gradients_equal
    assert all("forward" not in vars(part) for part in model.modules())


def test_progress_ends_at_its_total_and_a_comparison_can_be_cancelled():
    seen: list[tuple[int, int]] = []
    case = Case(nn.Sequential(linear(), linear()), (x(),))
    compared(case, (0.5,), on_progress=lambda *now: seen.append(now))
    assert seen[-1][0] == seen[-1][1]
    assert all(first[0] < second[0] for first, second in itertools.pairwise(seen))
    for asked in (0, 3, 20):
        answers = iter([False] * asked)
        with pytest.raises(ExecutionError, match="cancelled"):
            compared(case, cancelled=lambda answers=answers: next(answers, True))


def test_a_budget_out_of_range_and_a_model_without_weights_are_refused():
    with pytest.raises(ExecutionError, match="a share from 0 to 1, not 2"):
        compared(Case(linear(), (x(),)), (0.5, 2))
    with FakeTensorMode():
        model = linear()
    with pytest.raises(ExecutionError, match="shape but no content"):
        compared(Case(model, (x(),)))
