"""Lightning and accelerate train a rematerialized model as they train a plain one."""

import copy
import logging
from functools import cache
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import remat_explorer as rx
from remat_explorer.errors import CaptureError, ExecutionError
from tests.runtime.kinds_of_models import Made
from tests.runtime.language_model import Needed, equal_weights

lightning, accelerate = Needed("lightning"), Needed("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")

_random = torch.Generator().manual_seed(0)
X, Y = torch.randn(128, 16, generator=_random), torch.randn(128, 1, generator=_random)
ONE = (X[:64],)


def network() -> nn.Module:
    torch.manual_seed(0)
    parts = (part for _ in range(5) for part in (nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1)))
    return nn.Sequential(*parts, nn.Linear(16, 1))


def planned(model: nn.Module) -> Any:
    trained: Any = rx.rematerialize(model, ONE, budget="85%", time_limit=5)
    assert trained.rematerialization.solution.schedule.recomputations > 0
    return trained


@pytest.fixture(scope="module")
def made() -> Any:
    return planned(network())


@pytest.fixture
def untouched(made: Any) -> Any:
    return copy.deepcopy(made)


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(X, Y), batch_size=64)


@cache
def regression_class() -> Any:
    class Regression(lightning.LightningModule):
        """A network that Lightning trains; its step calls the module itself, or the network in it."""

        def __init__(self, inner: nn.Module, calls_itself: bool = True) -> None:
            super().__init__()
            self.network, self.calls_itself, self.losses = inner, calls_itself, []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.network(x)

        def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
            called = self if self.calls_itself else self.network
            loss = functional.mse_loss(called(batch[0]).float(), batch[1])
            self.log("loss", loss)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, batch_index: int) -> None:
            self.log("error", functional.mse_loss(self(batch[0]).float(), batch[1]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    return Regression


def regression(inner: nn.Module, **how: Any) -> Any:
    return regression_class()(inner, **how)


def fit(module: Any, folder: Any, precision: Any = "32-true", **options: Any) -> Any:
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    torch.manual_seed(1)
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=2, default_root_dir=folder, precision=precision, **quiet, **options
    )
    trainer.fit(module, loader(), loader())
    return trainer


@pytest.mark.parametrize(("whole", "precision"), [(True, "bf16-mixed"), (False, "32-true")])
def test_lightning_ends_with_the_losses_and_weights_of_plain_training(precision, whole, untouched, tmp_path):
    plain = regression(network())
    trained = planned(regression(network())) if whole else regression(untouched, calls_itself=False)
    runs = [fit(one, tmp_path / str(number), precision) for number, one in enumerate((plain, trained))]
    assert plain.losses == trained.losses != []
    assert equal_weights(plain, trained)
    assert runs[0].callback_metrics == runs[1].callback_metrics
    loaded = regression_class().load_from_checkpoint(runs[1].checkpoint_callback.best_model_path, inner=network())
    assert equal_weights(plain, loaded)


def test_a_training_step_that_does_not_call_the_module_and_inputs_that_are_none_of_forward_are_refused(tmp_path):
    trained = planned(regression(network(), calls_itself=False))
    with pytest.raises(ExecutionError, match=r"training_step of Regression does not call .* Write self\(x\) in it"):
        fit(trained, tmp_path)
    with pytest.raises(CaptureError, match=r"forward takes \(x.*\).* give what training_step passes to self"):
        rx.rematerialize(regression(network()), ((X, Y), 0), budget="85%")


def accelerated(model: nn.Module, precision: str) -> tuple[list[float], Any]:
    accelerate.state.AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=2)
    made, optimizer, batches = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), loader())
    losses = []
    torch.manual_seed(1)
    for x, y in (pair for _ in range(2) for pair in batches):
        with accelerator.accumulate(made):
            loss = functional.mse_loss(made(x).float(), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(made.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, made


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_accelerate_ends_with_the_losses_and_weights_of_plain_training(precision, untouched):
    plain = network()
    losses, made = accelerated(untouched, precision)
    assert losses == accelerated(plain, precision)[0]
    assert equal_weights(plain, untouched)
    twin = copy.deepcopy(made)
    assert twin(*ONE).dtype == torch.float32
    unwrapped = accelerate.utils.extract_model_from_parallel(made, keep_fp32_wrapper=False)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        assert "PlannedStep" in type(unwrapped(*ONE).grad_fn).__name__


def test_what_is_assigned_to_forward_goes_around_the_plan_and_leaves_the_model_alone(untouched):
    trained = untouched
    own = trained.forward
    trained.forward = lambda x: 2 * own(x)
    torch.manual_seed(2)
    doubled = trained(*ONE)
    torch.manual_seed(2)
    assert torch.equal(doubled, 2 * trained.rematerialization.model(*ONE))
    trained.forward = own
    assert trained.rematerialization.assigned is None
    trained.forward = MethodType(lambda self, x: self[0](x), trained)
    refused = pytest.raises(ExecutionError, match="does not call the one that was there, so no plan ran")
    with refused:
        trained(*ONE)
    with torch.no_grad():
        assert trained(*ONE).shape == (64, 16)
    del trained.forward
    trained.forward = lambda x, y=None: own(x) if y is None else functional.mse_loss(trained[0](x)[:, :1], y)
    trained(*ONE).sum().backward()
    with refused:  # which went through the plan before
        trained(*ONE, y=Y[:64])


def losses_of(model: Any) -> list[float]:
    """Of steps with an evaluation behind each; only those call the model's own forward, as trl's SFTTrainer."""
    own = model.forward

    def with_loss(self: Any, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return own(x) if y is None else functional.mse_loss(self.statistics(self.layers(x)), y)

    model.forward = MethodType(with_loss, model)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    torch.manual_seed(3)
    for _ in range(4):
        loss = model(X[:64], y=Y[:64])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            losses += [loss.item(), model(X[64:]).sum().item()]
        model.train()
    return losses


def test_a_forward_that_takes_the_place_of_the_models_is_planned_in_its_place():
    plain = Made(lambda s, x: s.statistics(s.layers(x)), layers=network(), statistics=nn.BatchNorm1d(1))
    made: Any = rx.rematerialize(copy.deepcopy(plain), ONE, budget="85%", time_limit=5)
    first = made.rematerialization.solution
    assert losses_of(made) == losses_of(plain)
    assert equal_weights(plain, made)
    assert made.rematerialization.solution.graph.n > first.graph.n  # with the loss in it
    assert "PlannedStep" in type(made(X[:64], y=Y[:64]).grad_fn).__name__
