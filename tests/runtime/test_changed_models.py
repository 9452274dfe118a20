"""What changes in a model after its plan was made is noticed at the next step, never trained past."""

import copy
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from remat_explorer.errors import ExecutionError
from tests.runtime.kinds_of_models import Made
from tests.runtime.step_outcomes import assert_like_plain, equal, planned, step
from tests.thorough import thorough_but

X = torch.randn(8, 3, 6, 6)


@dataclass
class Settings:
    dropout: float = 0.5
    slope: float = 0.1


class Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings, self.layer = settings, nn.Linear(8, 8)
        self.scales, self.table, self.offset = [1.0, 2.0], {"shift": 0.5}, torch.ones(8)
        self.activation: Any = functional.gelu
        self.note = "never read by forward"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.activation(self.layer(x) + self.offset) * self.scales[0] + self.table["shift"]
        return functional.dropout(x, self.settings.dropout, self.training)


class Net(nn.Module):
    """As people write them: a stem with batch norm, blocks that share a configuration, a head, a factor."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.scale, self.extra = Settings(), 1.0, types.SimpleNamespace(temperature=1.0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3))
        self.blocks = nn.ModuleList([Block(self.config) for _ in range(2)])
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.stem(x).mean((2, 3))
        for block in self.blocks:
            y = y + block(y)
        if getattr(self, "doubling", False):
            y = 2 * y
        return self.head(y) * self.scale / self.extra.temperature


def tripled(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
    return 3 * output


def nothing(*arguments: Any) -> None:
    pass


def become(name: str, value: Any) -> Callable[[Any], None]:
    """An assignment to an attribute by its path."""

    def change(model: Any) -> None:
        *path, last = name.split(".")
        owner = model
        for part in path:
            owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
        setattr(owner, last, value)

    return change


GELU = partial(functional.gelu, approximate="tanh")
CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a factor": (become("scale", 10.0), r"attribute scale of the model \(Net\) is 10.0, .* made for 1.0. Set it"),
    "dropout": (become("stem.3.p", 0.7), r"attribute p of 'stem.3' \(Dropout\) is 0.7, .* made for 0.3"),
    "a field": (become("config.dropout", 0.0), r"settings.dropout of 'blocks.0' \(Block\) is 0.0, .* made for 0.5"),
    "a field of a namespace": (become("extra.temperature", 2.0), r"attribute extra.temperature of the model .* is 2.0"),
    "an entry of a list": (lambda m: m.blocks[1].scales.__setitem__(0, 5.0), r"scales\[0\] of 'blocks.1' .* is 5.0"),
    "an entry of a dictionary": (lambda m: m.blocks[0].table.update(shift=0.0), r"table\['shift'\] of .* is 0.0"),
    "an activation function": (become("blocks.0.activation", torch.tanh), "activation of .* is tanh, .* made for gelu"),
    "a part of a function": (become("blocks.0.activation", GELU), "attribute activation of 'blocks.0' .* is a partial"),
    "a tensor in place": (lambda m: m.blocks[0].offset.zero_(), "attribute offset of .*, was written to since"),
    "an attribute that was not there": (become("doubling", True), r"attribute doubling of the model .* not there"),
    "a submodule of another kind": (become("stem.2", nn.Tanh()), r"'stem.2' \(ReLU\) is now a Tanh"),
    "a wider head": (become("head", nn.Linear(8, 5)), r"'head.weight' has the shape \[5, 8\], .* made for \[4, 8\]"),
    "a block more": (lambda m: m.blocks.append(Block(m.config)), r"has got 'blocks.2.layer.weight'"),
    "a frozen layer": (lambda m: m.head.requires_grad_(False), r"'head.weight' is frozen, .* before .*, or .*resolve"),
    "a forward hook": (
        lambda m: m.head.register_forward_hook(tripled),
        r"the forward hook tripled of 'head' \(Linear\) was registered after the plan was made",
    ),
    "a forward pre hook": (lambda m: m.head.register_forward_pre_hook(nothing), "forward pre hook nothing of 'head'"),
    "a backward hook": (lambda m: m.head.register_full_backward_hook(nothing), "the backward hook nothing of 'head'"),
    "another forward": (become("head.forward", lambda x: x[:, :4]), r"attribute forward of 'head' .* is .*lambda"),
    "a part in evaluation mode": (
        lambda m: m.stem[1].eval(),
        r"'stem.1' is in evaluation mode, but the plan was made for training. Call train\(\) and eval\(\) before",
    ),
    "a parametrization": (lambda m: parametrizations.weight_norm(m.head), "no longer has 'head.weight'"),
    "weights that are tied": (
        lambda m: setattr(m.blocks[1].layer, "weight", m.blocks[0].layer.weight),
        r"'blocks.1.layer.weight' is the same tensor as 'blocks.0.layer.weight'",
    ),
}


@pytest.fixture(scope="module")
def made() -> Any:
    trained = planned(Net(), X)
    step(trained, X)  # what differs in the first step is planned anew
    return trained


@pytest.fixture
def trained(made: Any) -> Any:
    return copy.deepcopy(made)


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_trace_has_read_must_not_change_without_a_word(name, trained):
    change, words = CHANGES[name]
    change(trained)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=words):
            trained(X)


PLANNED_ANEW = ("an activation function", "a tensor in place", "a forward hook", "a wider head")


@pytest.mark.parametrize("name", thorough_but(PLANNED_ANEW, "a forward hook", "a wider head"))
def test_with_resolve_a_changed_model_is_planned_anew(name):
    model = Net()
    trained = planned(model, X, resolve=True)
    CHANGES[name][0](model)
    for _ in range(2):
        assert_like_plain(trained, X)
    assert len(trained.rematerialization.plans) == 2


def test_another_constant_tensor_is_traced_with_a_warning(trained):
    trained.blocks[0].offset = torch.zeros(8)
    words = r"attribute offset of 'blocks.0' \(Block\) is another one than .*: a tensor, float32 of shape \[8\]"
    with pytest.warns(UserWarning, match=words):
        assert_like_plain(trained, X)


def test_going_back_finds_the_old_plan_which_a_copy_has_too():
    model = Net()
    trained = planned(model, X, resolve=True)
    plan = trained.rematerialization.plans[0]
    for scale in (10.0, 1.0, 10.0):
        trained.scale = scale
        assert_like_plain(trained, X)
    twin = copy.deepcopy(trained)
    hook = model.head.register_forward_hook(tripled)
    assert_like_plain(trained, X)
    trained.eval()
    assert torch.equal(trained(X), model(X))  # the hook runs once
    trained.train()
    hook.remove()
    trained.scale = 1.0
    assert_like_plain(trained, X)
    assert trained.rematerialization.plans[-1].code is plan.code
    for scale in (10.0, 1.0):  # its own
        twin.scale = scale
        assert_like_plain(twin, X)
    assert trained.scale == 1.0
    assert len(twin.rematerialization.plans) == 2


HARMLESS: dict[str, Callable[[Any], Any]] = {
    "an attribute that forward does not read": become("blocks.0.note", "something else"),
    "a new attribute": become("epoch", 3),
    "an equal configuration": become("blocks.0.settings", Settings()),
    "weights of the same shape": become("head.weight", nn.Parameter(torch.randn(4, 8))),
    "weights through data": become("head.weight.data", torch.randn(4, 8)),
    "a head of the same kind": become("head", nn.Linear(8, 4)),
    "a mode that nothing asks for": lambda model: model.head.eval(),
    "a hook that is removed again": lambda model: model.head.register_forward_hook(tripled).remove(),
    "a module that forward does not use": lambda model: model.add_module("probe", nn.Identity()),
    "a hook of the state": lambda model: model.register_state_dict_post_hook(lambda *_: None),
    "another number of threads": lambda model: torch.set_num_threads(2),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_changes_nothing_is_no_error(name, trained):
    HARMLESS[name](trained)
    try:
        assert_like_plain(trained, X)
    finally:
        torch.set_num_threads(1)
    assert len(trained.rematerialization.plans) == 1


def test_an_assignment_to_either_is_an_assignment_to_both(trained):
    model = trained.rematerialization.model
    trained.scale, trained.head = 10.0, nn.Linear(8, 7)
    assert (model.scale, model.head.out_features) == (10.0, 7)
    model.scale = 2.0
    trained.register_buffer("steps", torch.zeros(()))
    del trained.extra
    assert trained.scale == 2.0
    assert "steps" in model.state_dict()
    assert not hasattr(model, "extra") | hasattr(model, "rematerialization")
    trained.eval()
    assert not model.training
    assert trained.to(torch.float64).head.weight is model.head.weight


def test_hooks_of_the_rematerialized_model_go_around_its_plan(trained):
    seen: list[Any] = []
    hooks = [
        trained.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        trained.register_forward_hook(lambda module, args, output: seen.append(module) or output * 3),
        trained.register_full_backward_hook(lambda module, into, out: seen.append(out)),
    ]
    assert torch.equal(step(trained, X)[0], 3 * step(trained.rematerialization.model, 2 * X)[0])
    assert seen[0] is trained
    assert len(seen) == 2
    for hook in hooks:
        hook.remove()
    assert_like_plain(trained, X)


SETTINGS: list[tuple[Callable[[Any], None], Any, Any, str]] = [
    (torch.set_default_dtype, torch.float64, torch.float32, r"default_dtype\(\) is .*64, .* made with .*32. Set it"),
    (torch.use_deterministic_algorithms, True, False, r"torch.are_deterministic_algorithms_enabled\(\) is True"),
    (torch.backends.cuda.enable_math_sdp, False, True, r"torch.backends.cuda.math_sdp_enabled\(\) is False"),
]


def test_settings_that_decide_numbers_and_a_hook_for_all_modules_are_noticed(trained):
    hook = nn.modules.module.register_module_forward_hook(nothing)
    try:
        with pytest.raises(ExecutionError, match="hooks for all modules were registered or removed since"):
            trained(X)
    finally:
        hook.remove()
    step(trained, X)
    for choose, value, before, words in SETTINGS:
        choose(value)
        try:
            with pytest.raises(ExecutionError, match=words):
                trained(X)
        finally:
            choose(before)
        step(trained, X)


def test_a_forward_that_was_replaced_before_is_the_one_that_is_planned():
    model: Any = nn.Linear(6, 6)
    own = model.forward
    model.forward = lambda x: 2 * own(x)
    assert_like_plain(planned(model, X), X)


class Weighted:
    def __init__(self) -> None:
        self.weight, self.distance = 2.0, nn.SmoothL1Loss(beta=1.0)

    def __call__(self, output: torch.Tensor) -> torch.Tensor:
        return self.weight * self.distance(output, torch.zeros_like(output))


def test_what_a_loss_reads_and_an_attribute_of_the_class_are_noticed():
    class Scaled(nn.Linear):
        scale = 2.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.scale

    loss = Weighted()
    trained = planned(Scaled(6, 6), X, loss=loss)
    trained(X).backward()
    for one, name, was, words in (
        (loss, "weight", 2.0, "loss.weight of a Weighted.* that is no part of the model"),
        (loss, "distance.beta", 1.0, "beta of a Sm.* that is no part of the model"),
        (Scaled, "scale", 2.0, r"scale of the model \(Scaled\) is 5.0, .* made for 2.0"),
    ):
        become(name, 5.0)(one)
        with pytest.raises(ExecutionError, match=f"attribute {words}"):
            trained(X)
        become(name, was)(one)


SCALE = 1.0
ACTIVATION: Any = torch.relu
TABLE = {"scale": 1.0, "offset": np.zeros(4, np.float32), "names": {"x"}, "of": [torch.relu]}


class Config:
    scale = 1.0


class Trainer:
    """What people write around a model: its hook reads one attribute, the loop changes others."""

    def __init__(self) -> None:
        self.scale, self.steps, self.losses = 1.0, 0, list[float]()

    def hook(self, module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        return output * self.scale

    @property
    def twice(self) -> float:
        return 2 * self.scale


TRAINER = Trainer()
SPACE = globals()
READS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Any, Any, str]] = {
    "a global variable": (lambda y: y * SCALE, SPACE, "SCALE", r"global variable 'SCALE' is 2.0, .* made for 1.0. Set"),
    "a function": (lambda y: ACTIVATION(y), SPACE, "ACTIVATION", "variable 'ACTIVATION' is 2.0, .* made for relu"),
    "an entry": (lambda y: y * TABLE["scale"], TABLE, "scale", r"'TABLE', at \['scale'\], is 2.0, .* made for 1.0"),
    "an array": (lambda y: y + torch.from_numpy(TABLE["offset"].copy()), TABLE["offset"], 1, "an array of <f4"),
    "a set": (lambda y: -y if "x" in TABLE["names"] else y, TABLE, "names", r"\['names'\], is 2.0, .* a set of 1"),
    "a function in a list": (lambda y: TABLE["of"][0](y), TABLE["of"], 0, r"\['of'\]\[0\], is 2.0, .* for relu"),
    "an attribute of a class": (lambda y: y * Config.scale, Config, "scale", "'scale' of the class Config is 2.0"),
    "an attribute of an object": (lambda y: y * TRAINER.scale, TRAINER, "scale", "'TRAINER', at scale, is 2.0"),
    "a property of an object": (lambda y: y * TRAINER.twice, TRAINER, "scale", "'TRAINER', at scale, is 2.0"),
}


@contextmanager
def exchanged(owner: Any, key: Any) -> Iterator[None]:
    """2.0 is there meanwhile."""
    space = vars(owner) if isinstance(owner, Trainer) else owner
    before = space.__dict__[key] if isinstance(space, type) else space[key]
    put = partial(setattr, space) if isinstance(space, type) else space.__setitem__
    put(key, 2.0)
    yield
    put(key, before)


@pytest.mark.parametrize("name", READS)
def test_what_forward_reads_around_the_model_must_not_change_without_a_word(name):
    read, owner, key, words = READS[name]
    x = torch.ones(2, 6)
    trained = planned(Made(lambda self, x: read(self.layer(x)).square().mean(), layer=nn.Linear(6, 4)), x)
    trained(x).backward()
    with exchanged(owner, key), pytest.raises(ExecutionError, match=words):
        trained(x)
    trained(x).backward()  # as it was


def test_what_a_loop_changes_in_an_object_whose_hook_reads_something_else_is_no_error():
    trainer, model = Trainer(), nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    model[0].register_forward_hook(trainer.hook)
    trained = planned(model, torch.ones(2, 6))
    for _ in range(2):
        assert_like_plain(trained, torch.ones(2, 6))
        trainer.steps += 1
        trainer.losses.append(0.5)
    trainer.scale = 3.0
    with pytest.raises(ExecutionError, match=r"hook.__self__.scale of the forward hook of '0' \(Linear\) is 3.0"):
        trained(torch.ones(2, 6))


def test_a_global_variable_with_the_name_of_an_attribute_is_another(monkeypatch):
    trained = planned(Made(lambda self, x: self.TRAINER(x), TRAINER=nn.Linear(6, 4)), torch.ones(2, 6))
    monkeypatch.setitem(SPACE, "TRAINER", None)
    assert_like_plain(trained, torch.ones(2, 6))


def test_parameters_that_are_none_of_the_models_are_refused():
    model = Made(lambda s, x: s.others[0](s.first(x)), first=nn.Linear(6, 6), others=[nn.Linear(6, 6)])
    with pytest.raises(ExecutionError, match=r"the parameter 'weight' of a Linear is used .* nn\.ModuleList in place"):
        planned(model, X)


HELD: dict[str, Callable[[torch.Tensor], Any]] = {
    "an attribute": lambda scale: scale[None].detach().requires_grad_(),
    "a list": lambda scale: [scale],
    "a parameter in a list": lambda scale: [nn.Parameter(scale)],
}


def scaled(held: Any) -> nn.Module:
    return Made(lambda s, x: (s.layer(x) * s.scale[0]).square().mean(), layer=nn.Linear(6, 6), scale=held)


@pytest.mark.parametrize("held", HELD)
def test_a_trained_tensor_that_is_no_parameter_is_refused(held):
    words = r"at test_changed_models\.py:\d+, .* nor an input: .*nn\.ParameterList in"
    with pytest.raises(ExecutionError, match=words):
        planned(scaled(HELD[held](torch.ones(6, requires_grad=True))), X)


def test_a_trained_tensor_that_is_registered_gets_its_gradient_and_may_else_be_read_detached():
    tensor = torch.full((6,), 0.5, requires_grad=True)
    assert_like_plain(planned(scaled(nn.ParameterList([tensor])), X), X)
    assert_like_plain(planned(Made(lambda s, x: s.l(x) * s.held[0].detach(), l=nn.Linear(6, 6), held=[tensor]), X), X)


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

    model, x = Dropped(), torch.randn(5, 2, 4)
    with pytest.warns(UserWarning, match="_flat_weights"):
        trained = planned(model, x)
    twin = Dropped()
    twin.load_state_dict(model.state_dict())
    for _ in range(2):
        assert equal(step(trained, x), step(twin, x))
        with torch.no_grad():
            trained.raw.mul_(0.5)
            twin.raw.mul_(0.5)
    assert torch.equal(model.eval()(x), twin.eval()(x))
