"""What the other tests show on the CPU, on a CUDA device."""

import copy
import gc
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.capture.memory_meter import CudaMeter
from remat_explorer.capture.model_placement import exact_kernels
from remat_explorer.errors import OutOfMemoryError
from remat_explorer.models import LoadedModel
from remat_explorer.runtime.plan_runner import hard_cap

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here"),
]
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True, scope="module")
def deterministic() -> Iterator[None]:
    """What a person sets who wants equal numbers; a plan trains with what is set."""
    with exact_kernels():
        yield


@pytest.fixture(scope="module")
def net() -> LoadedModel:
    return rx.models.load("residual_net", batch=256, image=32, device="cuda")


@pytest.fixture(scope="module")
def tightest(net) -> rx.Solution:
    graph = rx.profile(net.graph, net.module, net.args, device="cuda")
    smallest = rx.minimum_budget(graph)
    solution = rx.solve(graph, smallest.known_feasible, time_limit=5)
    assert solution.schedule is not None
    assert solution.schedule.recomputations > 0
    return solution


def train(model: nn.Module, steps: int = 20) -> None:
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        x, y = torch.randn(256, 3, 32, 32, device=CUDA), torch.randint(0, 10, (256,), device=CUDA)
        optimizer.zero_grad()
        model(x, y).backward()
        optimizer.step()


def test_twenty_steps_end_with_the_weights_of_plain_training(net, tightest):
    plain = copy.deepcopy(net.module)
    trained = rx.rematerialize(copy.deepcopy(net.module), net.args, solution=tightest)
    states = []
    for model in (plain, trained):
        train(model)
        states.append(torch.cuda.get_rng_state(CUDA))
    assert torch.equal(*states)
    for key, content in plain.state_dict().items():
        assert torch.equal(content, trained.state_dict()[key]), key


def test_a_plan_keeps_to_its_budget_under_a_hard_cap_and_a_memory_snapshot_is_written(net, tightest, tmp_path):
    path = tmp_path / "snapshot.pickle"
    found = rx.measure(tightest, net.module, net.args, device="cuda", hard_cap=True, snapshot=path)
    assert b"device_traces" in path.read_bytes()  # it is a pickle, and nothing is unpickled here
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert found.sound
    assert abs(found.error) <= 0.001
    assert found.generated_peak == found.peak
    assert found.allocator is not None
    plan, process = found.allocator.plan, found.allocator.process
    assert found.peak == plan.requested
    assert plan.allocated >= plan.requested - 4096  # blocks that are there at the start are rounded up, too
    assert process.requested <= process.allocated <= process.reserved
    assert plan.requested <= process.requested


def test_running_out_of_memory_names_the_statement_and_the_next_step_takes_what_was_predicted(net, tightest):
    trained = rx.rematerialize(copy.deepcopy(net.module), net.args, solution=tightest)
    trained(*net.args).backward()
    trained.zero_grad()
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(CUDA)
    with hard_cap(CUDA, 0), pytest.raises(OutOfMemoryError, match=r"memory ran out at 'compute .* were predicted"):
        trained(*net.args).backward()
    gc.collect()
    assert torch.cuda.memory_allocated(CUDA) <= before
    for _ in range(2):
        trained.zero_grad()
        with CudaMeter(CUDA) as meter, meter.section():
            trained(*net.args).backward()
    peak = tightest.graph.resident_bytes + meter.readings[0].highest
    assert 0.99 * tightest.peak <= peak <= tightest.budget


def test_what_plain_pytorch_cannot_hold_is_profiled_and_measured_without_it(net):
    loaded = rx.models.load("residual_net", batch=512, image=32, device="cuda")
    free = loaded.graph.summary().peak * 3 // 4
    with hard_cap(CUDA, free):
        graph = rx.profile(loaded.graph, loaded.module, loaded.args, device="cuda", refresh=True)
        solution = rx.solve(graph, rx.minimum_budget(graph).known_feasible, time_limit=5)
        found = rx.measure(solution, loaded.module, loaded.args, device="cuda", repeats=1)
    assert found.eager is None
    assert "memory ran out in plain PyTorch" in found.missing
    assert found.within_budget


def test_moving_a_model_to_cuda_plans_anew():
    model, x = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1), nn.Linear(64, 8)), torch.randn(512, 64)
    trained = rx.rematerialize(model, (x,), budget="95%", time_limit=5).to(CUDA)
    x = x.to(CUDA)
    gradients = []
    for one in (model, trained):
        torch.manual_seed(0)
        gradients.append(torch.autograd.grad(functional.mse_loss(one(x), x[:, :8]), list(one.parameters())))
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))


def test_mixed_precision_with_a_gradient_scaler(net):
    plain, planned = copy.deepcopy(net.module), copy.deepcopy(net.module)
    with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
        trained = rx.rematerialize(planned, net.args, budget="80%", time_limit=5)
    for model in (plain, trained):
        torch.manual_seed(3)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.01), torch.amp.GradScaler("cuda")
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16, cache_enabled=False):
                loss = model(*net.args)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    for key, content in plain.state_dict().items():
        torch.testing.assert_close(content, trained.state_dict()[key], msg=key)


def test_recurrent_layers_are_within_rounding_of_cudnns():
    """A plan runs them without cuDNN, plain training with it."""
    torch.manual_seed(0)
    model, x = nn.LSTM(64, 64, 2).to(CUDA), torch.randn(16, 8, 64, device=CUDA)
    trained = rx.rematerialize(copy.deepcopy(model), (x,), budget="100%", loss=lambda y: y[0].square().mean())
    model(x)[0].square().mean().backward()
    trained(x).backward()
    for mine, theirs in zip(trained.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-2, atol=1e-4)


def test_every_peer_of_pytorch_is_measured(net):
    found = {peer.name: peer for peer in rx.compare_peers(net.module, net.args, device="cuda", repeats=1)}
    for name in ("eager", "checkpoint-blocks", "pytorch-budget"):
        assert found[name].problem is None
        assert found[name].gradients_equal
