"""What changes in a model after its plan was made is noticed at the next step, never trained past."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import remat_explorer as rx
from remat_explorer.errors import ExecutionError
from tests.thorough import thorough_but

X = torch.randn(8, 3, 6, 6)


@dataclass
class Settings:
    dropout: float = 0.5
    slope: float = 0.1


class Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.layer = nn.Linear(8, 8)
        self.scales = [1.0, 2.0]
        self.table = {"shift": 0.5}
        self.activation: Any = functional.gelu
        self.offset = torch.ones(8)
        self.note = "never read by forward"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.layer(x) + self.offset) * self.scales[0] + self.table["shift"]
        return functional.dropout(x, self.settings.dropout, self.training)


class Net(nn.Module):
    """As people write them: a stem with batch norm, blocks that share a configuration, a head, a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Settings()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3))
        self.blocks = nn.ModuleList([Block(self.config) for _ in range(2)])
        self.head = nn.Linear(8, 4)
        self.scale = 1.0
        self.masking = None
        self.extra = types.SimpleNamespace(temperature=1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x).mean((2, 3))
        for block in self.blocks:
            y = y + block(y)
        if getattr(self, "doubling", False):
            y = 2 * y
        return self.head(y) * self.scale / self.extra.temperature


def planned(model: nn.Module, *args: Any, **options: Any) -> Any:
    return rx.rematerialize(model, args or (X,), budget="100%", strategy="checkpoint-all", **options)


def step(model: Any, *args: Any) -> list[torch.Tensor]:
    """Output and gradients of a step from fixed random numbers; buffers are put back, so that steps are alike."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    torch.manual_seed(5)
    output = model(*args or (X,))
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = torch.autograd.grad(output.square().mean(), trainable, allow_unused=True)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    return [output.detach(), *(gradient for gradient in found if gradient is not None)]


def assert_like_plain(trained: Any, model: nn.Module, *args: Any) -> None:
    mine, plain = step(trained, *args), step(model, *args)
    assert len(mine) == len(plain)
    assert all(torch.equal(*pair) for pair in zip(mine, plain, strict=True))


def tripled(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return 3 * output


def set_momentum(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.01


def become(name: str, value: Any) -> Callable[[Any], None]:
    """An assignment to an attribute by its path."""

    def change(model: Any) -> None:
        *path, last = name.split(".")
        owner = model
        for part in path:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        setattr(owner, last, value)

    return change


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a factor": (become("scale", 10.0), r"attribute scale of the model \(Net\) is 10.0, .* made for 1.0. Set it"),
    "dropout": (become("stem.3.p", 0.7), r"attribute p of 'stem.3' \(Dropout\) is 0.7, .* made for 0.3"),
    "momentum": (set_momentum, r"attribute momentum of 'stem.1' \(BatchNorm2d\) is 0.01, .* made for 0.1"),
    "a field of a configuration": (
        lambda model: setattr(model.config, "dropout", 0.0),
        r"attribute settings.dropout of 'blocks.0' \(Block\) is 0.0, but the plan was made for 0.5",
    ),
    "a field of a namespace": (
        lambda model: setattr(model.extra, "temperature", 2.0),
        r"attribute extra.temperature of the model \(Net\) is 2.0",
    ),
    "an entry of a list": (
        lambda model: model.blocks[1].scales.__setitem__(0, 5.0),
        r"attribute scales\[0\] of 'blocks.1' \(Block\) is 5.0, but the plan was made for 1.0",
    ),
    "an entry of a dictionary": (
        lambda model: model.blocks[0].table.update(shift=0.0),
        r"attribute table\['shift'\] of 'blocks.0' \(Block\) is 0.0",
    ),
    "an activation function": (
        become("blocks.0.activation", torch.tanh),
        r"attribute activation of 'blocks.0' \(Block\) is tanh, but the plan was made for gelu",
    ),
    "a part of a function": (
        become("blocks.0.activation", partial(functional.gelu, approximate="tanh")),
        r"attribute activation of 'blocks.0' \(Block\) is a partial",
    ),
    "a constant tensor in place": (
        lambda model: model.blocks[0].offset.zero_(),
        r"attribute offset of 'blocks.0' \(Block\), .*, was written to since",
    ),
    "an attribute that was not there": (
        become("doubling", True),
        r"attribute doubling of the model \(Net\) is True, .* not there",
    ),
    "a submodule of another kind": (become("stem.2", nn.Tanh()), r"'stem.2' \(ReLU\) is now a Tanh"),
    "a wider head": (become("head", nn.Linear(8, 5)), r"'head.weight' has the shape \[5, 8\], .* made for \[4, 8\]"),
    "a head without bias": (become("head", nn.Linear(8, 4, bias=False)), r"no longer has 'head.bias'"),
    "a block more": (
        lambda model: model.blocks.append(Block(model.config)),
        r"the model has got 'blocks.2.layer.weight'",
    ),
    "another weight": (become("head.weight", nn.Parameter(torch.ones(2, 8))), r"'head.weight' has the shape \[2, 8\]"),
    "a frozen layer": (
        lambda model: model.head.requires_grad_(False),
        r"'head.weight' is frozen, .* a gradient of it. Freeze what shall be frozen before rematerialize, or .*resolve",
    ),
    "a forward hook": (
        lambda model: model.head.register_forward_hook(tripled),
        r"the forward hook tripled of 'head' \(Linear\) was registered after the plan was made",
    ),
    "a forward pre hook": (
        lambda model: model.head.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        r"the forward pre hook .*lambda.* of 'head' \(Linear\) was registered",
    ),
    "a backward hook": (
        lambda model: model.head.register_full_backward_hook(lambda module, into, out: (into[0] * 2,)),
        r"the backward hook .*lambda.* of 'head' \(Linear\) was registered",
    ),
    "another forward": (
        lambda model: setattr(model.head, "forward", lambda x: x[:, :4]),
        r"attribute forward of 'head' \(Linear\) is .*lambda",
    ),
    "one part in evaluation mode": (
        lambda model: model.stem[1].eval(),
        r"'stem.1' is in evaluation mode, but the plan was made for training. Call train\(\) and eval\(\) before",
    ),
    "a parametrization": (
        lambda model: nn.utils.parametrizations.weight_norm(model.head),
        r"no longer has 'head.weight'",
    ),
    "weights that are tied": (
        lambda model: setattr(model.blocks[1].layer, "weight", model.blocks[0].layer.weight),
        r"'blocks.1.layer.weight' is the same tensor as 'blocks.0.layer.weight'",
    ),
}


@pytest.fixture(scope="module")
def made() -> tuple[Net, Any]:
    model = Net()
    trained = planned(model)
    step(trained)  # what differs in the first step is planned anew
    return model, trained


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_trace_has_read_must_not_change_without_a_word(name, made):
    change, words = CHANGES[name]
    trained = copy.deepcopy(made[1])
    step(trained)
    change(trained)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=words):
            trained(X)


PLANNED_ANEW = ["a factor", "momentum", "a field of a configuration", "an activation function", "a forward hook"]
PLANNED_ANEW += ["a wider head", "a constant tensor in place", "one part in evaluation mode", "a parametrization"]


@pytest.mark.parametrize(
    "name", thorough_but(PLANNED_ANEW, "a factor", "a forward hook", "a wider head", "one part in evaluation mode")
)
def test_with_resolve_a_changed_model_is_planned_anew(name):
    model = Net()
    trained = planned(model, resolve=True)
    CHANGES[name][0](model)
    assert_like_plain(trained, model)
    assert_like_plain(trained, model)
    assert len(trained.rematerialization.plans) == 2


def test_another_constant_tensor_is_traced_with_a_warning(made):
    trained = copy.deepcopy(made[1])
    trained.blocks[0].offset = torch.zeros(8)
    words = r"attribute offset of 'blocks.0' \(Block\) is another one than .*: a tensor, float32 of shape \[8\]"
    with pytest.warns(UserWarning, match=words):
        assert_like_plain(trained, trained.rematerialization.model)


def test_going_back_finds_the_old_plan():
    model = Net()
    trained = planned(model, resolve=True)
    plan = trained.rematerialization.plans[0]
    for scale in (10.0, 1.0, 10.0):
        trained.scale = scale
        assert_like_plain(trained, model)
    assert len(trained.rematerialization.plans) == 2
    hook = model.head.register_forward_hook(tripled)
    assert_like_plain(trained, model)
    hook.remove()
    trained.scale = 1.0
    assert_like_plain(trained, model)
    assert trained.rematerialization.plans[-1].code is plan.code


HARMLESS: dict[str, Callable[[Any], Any]] = {
    "an attribute that forward does not read": become("blocks.0.note", "something else"),
    "a new attribute": become("epoch", 3),
    "the same number": lambda model: setattr(model, "scale", float("1.0")),
    "an equal list": lambda model: setattr(model.blocks[0], "scales", [1.0, 2.0]),
    "an equal configuration": lambda model: setattr(model.blocks[0], "settings", Settings()),
    "weights of the same shape": lambda model: setattr(model.head, "weight", nn.Parameter(torch.randn(4, 8))),
    "weights through data": lambda model: setattr(model.head.weight, "data", torch.randn(4, 8)),
    "a head of the same kind": lambda model: setattr(model, "head", nn.Linear(8, 4)),
    "evaluation between": lambda model: (model.eval(), model(X), model.train()),
    "a mode that nothing asks for": lambda model: model.head.eval(),
    "a hook that is removed again": lambda model: model.head.register_forward_hook(tripled).remove(),
    "a module that forward does not use": lambda model: model.add_module("probe", nn.Identity()),
    "a hook of the state": lambda model: model.register_state_dict_post_hook(lambda *_: None),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_nothing_is_no_error(name, made):
    trained = copy.deepcopy(made[1])
    HARMLESS[name](trained)
    assert_like_plain(trained, trained.rematerialization.model)
    assert len(trained.rematerialization.plans) == 1


def test_an_assignment_to_either_is_an_assignment_to_both():
    model = Net()
    trained = planned(model)
    trained.scale, trained.head = 10.0, nn.Linear(8, 7)
    assert (model.scale, model.head.out_features) == (10.0, 7)
    model.scale = 2.0
    trained.register_buffer("steps", torch.zeros(()))
    del trained.extra
    assert trained.scale == 2.0
    assert "steps" in model.state_dict()
    assert not hasattr(model, "extra")
    assert not hasattr(model, "rematerialization")
    trained.eval()
    assert not model.training
    assert trained.to(torch.float64).head.weight is model.head.weight


def test_hooks_of_the_rematerialized_model_go_around_its_plan():
    model = Net()
    trained = planned(model)
    seen: list[Any] = []
    hooks = [
        trained.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        trained.register_forward_hook(lambda module, args, output: seen.append(module) or output * 3),
        trained.register_full_backward_hook(lambda module, into, out: seen.append(out)),
    ]
    assert torch.equal(step(trained)[0], 3 * step(model, 2 * X)[0])
    assert seen[0] is trained
    assert len(seen) == 2
    for hook in hooks:
        hook.remove()
    assert_like_plain(trained, model)


def test_hooks_of_the_model_run_once_also_where_it_is_evaluated():
    model = Net()
    model.register_forward_hook(tripled)
    trained = planned(model)
    assert_like_plain(trained, model)
    trained.eval()
    assert torch.equal(trained(X), model(X))


def test_a_hook_for_all_modules_is_noticed(made):
    trained = copy.deepcopy(made[1])
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        with pytest.raises(ExecutionError, match="hooks for all modules were registered or removed since"):
            trained(X)
    finally:
        hook.remove()
    step(trained)


@pytest.mark.parametrize(
    ("change", "back", "words"),
    [
        (
            lambda: torch.set_default_dtype(torch.float64),
            lambda: torch.set_default_dtype(torch.float32),
            r"torch.get_default_dtype\(\) is torch.float64, but the plan was made with torch.float32. Set it before",
        ),
        (
            lambda: torch.use_deterministic_algorithms(True),
            lambda: torch.use_deterministic_algorithms(False),
            r"torch.are_deterministic_algorithms_enabled\(\) is True",
        ),
        (
            lambda: torch.backends.cuda.enable_math_sdp(False),
            lambda: torch.backends.cuda.enable_math_sdp(True),
            r"torch.backends.cuda.math_sdp_enabled\(\) is False",
        ),
    ],
)
def test_settings_that_decide_numbers_are_noticed(change, back, words, made):
    trained = copy.deepcopy(made[1])
    change()
    try:
        with pytest.raises(ExecutionError, match=words):
            trained(X)
    finally:
        back()
    step(trained)


def test_the_number_of_threads_is_no_matter(made):
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        step(copy.deepcopy(made[1]))
    finally:
        torch.set_num_threads(threads)


def test_a_copy_of_a_changed_model_is_changed_by_itself(made):
    trained = copy.deepcopy(made[1])
    twin = copy.deepcopy(trained)
    twin.scale = 5.0
    step(trained)
    with pytest.raises(ExecutionError, match="attribute scale of"):
        twin(X)


def test_a_forward_that_was_replaced_before_is_the_one_that_is_planned():
    model: Any = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    own = model.forward
    model.forward = lambda x: 2 * own(x)
    trained = planned(model, X)
    assert_like_plain(trained, model)
    assert "Planned" in type(trained(X).grad_fn).__name__ or "View" in type(trained(X).grad_fn).__name__


class Weighted:
    """A loss with an attribute, as people write them."""

    def __init__(self) -> None:
        self.weight, self.distance = 2.0, nn.SmoothL1Loss(beta=1.0)

    def __call__(self, output: torch.Tensor) -> torch.Tensor:
        return self.weight * self.distance(output, torch.zeros_like(output))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda loss: setattr(loss, "weight", 5.0),
            r"attribute loss.weight of a Weighted that is no part of the model",
        ),
        (lambda loss: setattr(loss.distance, "beta", 0.5), r"attribute beta of a SmoothL1Loss that is no part of the"),
    ],
)
def test_what_a_loss_reads_is_noticed(change, words):
    loss = Weighted()
    trained = rx.rematerialize(nn.Linear(6, 6), (X,), budget="100%", strategy="checkpoint-all", loss=loss)
    trained(X).backward()
    change(loss)
    with pytest.raises(ExecutionError, match=words):
        trained(X)


def test_an_attribute_of_the_class_is_noticed():
    class Scaled(nn.Linear):
        scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.scale

    trained = planned(Scaled(6, 6))
    step(trained)
    Scaled.scale = 3.0
    with pytest.raises(ExecutionError, match=r"attribute scale of the model \(Scaled\) is 3.0, .* made for 2.0"):
        trained(X)


def test_parameters_that_are_none_of_the_models_are_refused():
    class Hides(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.others = nn.Linear(6, 6), [nn.Linear(6, 6)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.others[0](self.first(x))

    with pytest.raises(ExecutionError, match=r"the parameter 'weight' of a Linear is used .* nn\.ModuleList in place"):
        planned(Hides())


def test_a_copy_keeps_the_plans_of_the_models_other_states():
    model = Net()
    trained = planned(model, resolve=True)
    trained.scale = 10.0
    step(trained)
    twin = copy.deepcopy(trained)
    trained.scale = 1.0
    assert_like_plain(twin, twin.rematerialization.model)
    twin.scale = 1.0
    assert_like_plain(twin, twin.rematerialization.model)
    assert len(twin.rematerialization.plans) == 2


@pytest.mark.parametrize("held", ["attribute", "list", "parameter in a list"])
def test_a_trained_tensor_that_is_no_parameter_is_refused_and_a_registered_one_gets_its_gradient(held):
    class Scaled(nn.Module):
        def __init__(self, registered: bool) -> None:
            super().__init__()
            self.layer, scale = nn.Linear(4, 4), torch.full((4,), 0.5, requires_grad=True)
            self.scale: Any
            if registered:
                self.scale = nn.ParameterList([scale])
            elif held == "attribute":
                self.scale = scale[None].detach().requires_grad_()
            else:
                self.scale = [scale if held == "list" else nn.Parameter(scale)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.layer(x) * self.scale[0]).square().mean()

    x = torch.ones(3, 4)
    with pytest.raises(
        ExecutionError, match=r"at test_changed_models\.py:\d+, .* nor an input: .*nn\.ParameterList in"
    ):
        rx.rematerialize(Scaled(False), (x,), budget="100%")
    model = Scaled(True)
    rx.rematerialize(model, (x,), budget="100%")(x).backward()
    expected = torch.autograd.grad(model(x), list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=0)


def test_a_trained_tensor_may_be_read_detached():
    class Scaled(nn.Linear):
        held = (torch.full((4,), 0.5, requires_grad=True),)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (super().forward(x) * self.held[0].detach()).mean()

    model = Scaled(4, 4)
    rx.rematerialize(model, (torch.ones(3, 4),), budget="100%")(torch.ones(3, 4)).backward()
    assert model.weight.grad is not None


@pytest.mark.parametrize("way", ["assigned", "assigned before", "functional_call"])
def test_weights_of_a_recurrent_layer_may_be_dropped(way):
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.LSTM(4, 4)
            self.layer.flatten_parameters = lambda: None
            self.raw = nn.Parameter(self.layer.weight_hh_l0.detach().clone())  # pyright: ignore[reportCallIssue]
            if way != "functional_call":
                del self.layer.weight_hh_l0
            if way == "assigned before":
                self.layer.weight_hh_l0 = self.raw.clone()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = nn.functional.dropout(self.raw, 0.5, self.training)
            if way == "functional_call":
                return torch.func.functional_call(self.layer, {"weight_hh_l0": weight}, (x,))[0]
            self.layer.weight_hh_l0 = weight
            return self.layer(x)[0]

    torch.manual_seed(0)
    model, x = Dropped(), torch.randn(5, 2, 4)
    with pytest.warns(UserWarning, match="_flat_weights"):
        planned = rx.rematerialize(model, (x,), budget="100%")
    twin = Dropped()
    twin.load_state_dict(model.state_dict())
    for seed in range(2):
        for one in (planned, twin):
            torch.manual_seed(seed)
            one(x).square().sum().backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=0)
    assert torch.equal(model.eval()(x), twin.eval()(x))
