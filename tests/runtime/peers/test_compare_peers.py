"""Peers give the gradients of plain PyTorch, are measured as our plans are, and leave the model as it was."""

from __future__ import annotations

import copy
import itertools
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

BUDGETS = (1.0, 0.5, 0.0)
Found = dict[str, PeerMeasurement]


def compared(case: Case, budgets: tuple[float, ...] = BUDGETS, **options: Any) -> Found:
    """Measurements by title."""
    found = rx.compare_peers(
        case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1, budgets=budgets, **options
    )
    return {peer.title: peer for peer in found}


def peak(peer: PeerMeasurement) -> int:
    """Bytes of a peer that ran."""
    assert peer.peak is not None, peer
    return peer.peak


@pytest.fixture(scope="module")
def residual() -> Found:
    loaded = rx.models.load("residual_net", batch=8, image=16)
    return compared(Case(loaded.module, loaded.args))


@pytest.fixture(scope="module")
def transformer() -> Found:
    sizes = {"VOCABULARY": 50, "POSITIONS": 16, "WIDTH": 16, "HEADS": 2, "LAYERS": 3}
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(gpt2, name, size)
        model = gpt2.GPT2()
    return compared(Case(model, (torch.randint(50, (4, 16)),), loss=lambda logits: logits.square().mean()))


@pytest.fixture(scope="module")
def chain() -> Found:
    layers = (layer for _ in range(8) for layer in (linear(), nn.Tanh()))
    return compared(Case(nn.Sequential(*layers), (x(4096, 8),)))


@pytest.fixture(scope="module")
def plain() -> Found:
    model = Made(lambda s, x: s.last(torch.tanh(s.layer(x))), layer=linear(), last=linear())
    return compared(Case(model, (x(64, 8),)))


ALL = ["residual", "transformer", "chain", "plain"]


@pytest.mark.parametrize("name", ALL)
def test_every_peer_has_the_gradients_and_the_random_state_of_eager(name, request):
    found = request.getfixturevalue(name)
    ran = [peer for peer in found.values() if peer.problem is None]
    assert len(ran) >= 1 + len(BUDGETS)
    for peer in ran:
        assert peer.gradients_equal, peer
        assert peer.gradient_difference == 0
        assert peer.rng_equal, peer
        assert peer.seconds is not None
        assert peer.overhead is not None
        assert peer.peak is not None


@pytest.mark.parametrize("name", ALL)
def test_the_measured_peak_of_a_pytorch_budget_is_the_predicted_one(name, request):
    found = request.getfixturevalue(name)
    for budget in BUDGETS:
        peer = found[f"pytorch-budget (budget {budget:g}, dp)"]
        assert peer.peak == pytest.approx(peer.predicted_peak, rel=1e-3)
        assert peer.buffers_equal
        assert peer.plan is not None
        assert peer.predicted_overhead >= 1


def test_eager_has_the_peak_that_measuring_a_plan_gives_it(residual):
    loaded = rx.models.load("residual_net", batch=8, image=16)
    solution = rx.solve(loaded.graph, "100%", strategy="checkpoint-all")
    eager = rx.measure(solution, loaded.module, loaded.args, device="cpu", repeats=1).eager
    assert eager is not None
    assert residual["eager"].peak == eager.peak


def test_blocks_and_segments_are_found_in_a_residual_network(residual):
    assert list(residual)[:4] == [
        "eager",
        "checkpoint-sequential (2 segments)",
        "checkpoint-sequential (3 segments)",
        "checkpoint-blocks (3 × ResidualBlock)",
    ]


def test_blocks_of_a_transformer_are_its_layers_and_save_memory(transformer):
    blocks = transformer["checkpoint-blocks (3 × GPT2Block)"]
    assert peak(blocks) < peak(transformer["eager"])
    assert blocks.buffers_equal


def test_a_sequence_saves_memory_in_segments_and_has_no_blocks(chain):
    assert peak(chain["checkpoint-sequential (4 segments)"]) < peak(chain["eager"])
    assert chain["checkpoint-blocks"].problem.startswith("the model has no repeated blocks")


def test_what_does_not_apply_is_said(plain):
    assert str(plain["checkpoint-sequential"]) == (
        "checkpoint-sequential: the model has no nn.Sequential of several members"
    )
    assert plain["checkpoint-blocks"].peak is None


def test_checkpoints_update_the_buffers_of_batch_normalization_twice_and_budgets_do_not(residual):
    for title, peer in residual.items():
        assert peer.buffers_equal is not title.startswith("checkpoint"), title


def test_a_smaller_budget_of_pytorch_can_have_a_larger_peak():
    loaded = rx.models.load("mobilenet_v1", batch=2, image=64)
    found = compared(Case(loaded.module, loaded.args), (0.5, 0.0))
    middle, least = (found[f"pytorch-budget (budget {budget}, dp)"] for budget in ("0.5", "0"))
    assert peak(least) > peak(middle)
    assert found["checkpoint-sequential (81 segments)"].problem == (
        "a layer in place right after the end of a checkpoint overwrites a tensor that the backward pass needs"
    )


LEFT = ["shared submodules", "LSTM with dropout", "train mode", "checkpoint inside", "data parallel"]


@pytest.mark.parametrize("kind", LEFT)
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
        (MemoryError(), "memory ran out"),
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


def test_dense_layers_that_share_a_growing_list_run_under_checkpoints():
    found = compared(Case(nn.Sequential(DenseBlock(3, 4, 2)), (x(2, 4, 6, 6),)), (0.0,))
    assert found["checkpoint-blocks (3 × DenseLayer)"].gradients_equal


def test_progress_ends_at_its_total_and_never_goes_back():
    seen: list[tuple[int, int]] = []
    compared(Case(nn.Sequential(linear(), linear()), (x(),)), (0.5,), on_progress=lambda *now: seen.append(now))
    assert seen[-1][0] == seen[-1][1]
    assert all(first[0] < second[0] for first, second in itertools.pairwise(seen))


@pytest.mark.parametrize("asked", [0, 3, 40])
def test_a_cancelled_comparison_stops(asked):
    answers = iter([False] * asked)
    case = Case(nn.Sequential(linear(), linear()), (x(),))
    with pytest.raises(ExecutionError, match="cancelled"):
        compared(case, cancelled=lambda: next(answers, True))


def test_a_budget_out_of_range_is_refused():
    with pytest.raises(ExecutionError, match="a share from 0 to 1, not 2"):
        compared(Case(linear(), (x(),)), (0.5, 2))


def test_a_model_without_weights_is_refused():
    with FakeTensorMode():
        model = linear()
    with pytest.raises(ExecutionError, match="shape but no content"):
        compared(Case(model, (x(),)))


def test_a_document_holds_every_number(chain):
    document = chain["pytorch-budget (budget 0.5, dp)"].to_document()
    assert document["knob"] == "budget 0.5, dp"
    assert document["measured_peak"] == chain["pytorch-budget (budget 0.5, dp)"].peak
    assert None not in {key: value for key, value in document.items() if key != "problem"}.values()
