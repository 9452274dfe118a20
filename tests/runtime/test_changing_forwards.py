"""What forward leaves behind: refused where a plan, which does not run forward, would leave it stale."""

import copy
import functools
import pickle
import queue
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import remat_explorer as rx
from remat_explorer.capture.dry_run import TensorPlaceholder
from remat_explorer.errors import CaptureError, ExecutionError
from remat_explorer.runtime import size_variants
from tests.runtime.kinds_of_models import Made, linear, x
from tests.runtime.step_outcomes import assert_like_plain, equal, planned, step
from tests.thorough import thorough, thorough_but


def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.steps += 1
    return self.layer(x) if self.steps > 3 else 2 * self.layer(x)


def counts_in_a_dictionary(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.state["steps"] = self.state["steps"] + 1
    return self.layer(x).sin()


def warms_up(self: Any, x: torch.Tensor) -> torch.Tensor:
    first, self.first = self.first, False
    return self.layer(x) * 2 if first else self.layer(x).sin()


def takes_scale(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.mean is None:
        self.mean = x.mean(0)
    return self.layer(x - self.mean)


def goes_on_from_its_state(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.memory = (self.layer(x).mean(0) + self.memory).detach()
    return self.layer(x) * self.memory


STALE: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "a counter": (counts, {"steps": 0}, r"steps of the model \(Made\), from 0 to 1, in every pass anew. .* loop"),
    "a counter in a dictionary": (counts_in_a_dictionary, {"state": {"steps": 0}}, r"state\['steps'\] .* from 0 to 1"),
    "a state": (goes_on_from_its_state, {"memory": torch.zeros(8)}, r"memory of .* return it from forward, or keep"),
    "another first step": (warms_up, {"first": True}, "first .* True to False, in the first pass alone, .* model once"),
    "a scale of the first batch": (takes_scale, {"mean": None}, "mean .* first pass alone, which depends on its in"),
}


@pytest.mark.parametrize("name", STALE)
def test_an_attribute_that_would_become_stale_is_refused_by_its_name(name):
    forward, attributes, words = STALE[name]
    model = Made(forward, layer=linear(), **copy.deepcopy(attributes))
    before = {path: dict(vars(module)) for path, module in model.named_modules()}
    with pytest.raises(ExecutionError, match=f"forward changes the attribute {words}"):
        planned(model, x())
    for path, module in model.named_modules():
        assert vars(module) == before[path]
    assert getattr(model, "state", {"steps": 0}) == {"steps": 0}
    if "first pass alone" in words:
        model(x())
        assert_like_plain(planned(model, x()), x())


def caches_positions(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.positions is None:
        self.positions = torch.arange(8.0).cos()
    return self.layer(x) * self.positions


def caches_by_length(self: Any, x: torch.Tensor) -> torch.Tensor:
    if len(x) not in self.masks:
        self.masks[len(x)] = torch.ones(len(x), len(x)).tril()
    return self.masks[len(x)] @ self.layer(x)


def notes_its_shape(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.shape = x.shape
    return functional.relu(self.layer(x)).view(self.shape)


def caches_the_last_mask(self: Any, x: torch.Tensor) -> torch.Tensor:
    if self.mask is None or len(self.mask) != len(x):
        self.mask = torch.ones(len(x), len(x)).tril()
    return functional.dropout(self.mask @ self.layer(x), 0.5, self.training)


CACHES: dict[str, Callable[[], nn.Module]] = {
    "positions": lambda: Made(caches_positions, layer=linear(), positions=None),
    "masks by length": lambda: Made(caches_by_length, layer=linear(), masks={}),
    "the shape of the input": lambda: Made(notes_its_shape, layer=linear()),
    "the last mask": lambda: Made(caches_the_last_mask, layer=linear(), mask=None),
}


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("name", CACHES)
def test_a_cache_is_no_obstacle_before_or_after_it_is_filled_or_where_an_evaluation_fills_it(name, has_run):
    model, data = CACHES[name](), x()
    if has_run:
        model(data)
    trained = planned(model, data)
    trained(data)
    for _ in range(2):  # epochs, of which the second finds what was left before
        trained.eval()
        trained(data[:3])
        trained.train()
        assert_like_plain(trained, data)
    assert len(trained.rematerialization.plans) <= 2


def test_a_cache_that_somebody_else_fills_with_other_numbers_is_noticed():
    model, data = CACHES["positions"](), x()
    trained: Any = rx.rematerialize(model, (data,), budget="200%", strategy="checkpoint-all")
    trained(data)
    model.positions = torch.zeros(8)
    with pytest.warns(UserWarning, match=r"attribute positions of the model \(Made\) .* The step is traced again"):
        assert_like_plain(trained, data)
    given = rx.rematerialize(model, (data,), solution=trained.rematerialization.solution)
    given(data)
    model.positions = torch.ones(8)
    with pytest.raises(ExecutionError, match=r"attribute positions of the model \(Made\)"):
        given(data)


def test_a_tensor_that_is_another_one_in_each_step_is_refused_after_a_while():
    model: Any = Made(lambda s, x: s.layer(x) * s.weights, layer=linear(), weights=torch.ones(8))
    data = x()
    trained = planned(model, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(size_variants.MAX_CACHE_VARIANTS):
            trained(data)
            model.weights = torch.full((8,), number + 0.5)
    with pytest.raises(ExecutionError, match=r"attribute weights of the model \(Made\) .* resolve=True"):
        trained(data)


def keeps_a_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.heads[0] = self.layer(x)
    self.heads[1] = self.heads[0].tanh()
    return torch.stack(self.heads).sum(0)


def keeps_a_new_list(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.seen = [self.layer(x), (self.layer(x).sin(), {"cos": self.layer(x).cos()})]
    return self.seen[1][0]


def leaves_a_loss(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(x)
    self.l_aux = y.square().mean()
    return y


LEFT: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], torch.Tensor]]] = {
    "a loss": (lambda: nn.Sequential(linear(), Made(leaves_a_loss, layer=linear(), l_aux=0.0)), lambda m: m[1].l_aux),
    "a list": (lambda: Made(keeps_a_list, layer=linear(), heads=[torch.ones(1)] * 2), lambda model: model.heads[1]),
    "a list that is a new one": (lambda: Made(keeps_a_new_list, layer=linear()), lambda model: model.seen[1][1]["cos"]),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_forward_leaves_behind_is_marked_as_not_there(name):
    make, look = LEFT[name]
    model: Any = make()
    data = x()
    with pytest.warns(UserWarning, match="after its steps such attributes are not there") as noted:
        trained = rx.rematerialize(model, (data,), budget="100%", strategy="checkpoint-all")
    assert [warning.filename for warning in noted] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        for _ in range(2):
            found = [step(one, data) for one in (model, trained)]
            assert equal(*found)
            assert isinstance(look(model), torch.Tensor)
            with pytest.raises(ExecutionError, match="is not there after a training step by a plan"):
                _ = found[0][0].sum() + look(model)
            trained(data[:2]).sum().backward()
            trained.eval()
            trained(data[:3])
            assert look(model).sum() < 1e6
            trained.train()
    assert len(trained.rematerialization.plans) == 2
    trained(data)
    assert look(copy.deepcopy(trained)) is look(trained)


def test_marks_are_told_from_other_tensors_by_everyone():
    mark = TensorPlaceholder.of("it is gone")
    assert b"remat_explorer" not in pickle.dumps(mark)  # whoever reads it need not have this package
    for use in (float, bool, torch.Tensor.detach, lambda gone: gone.shape, lambda gone: torch.stack([gone, gone])):
        with pytest.raises(ExecutionError, match="it is gone"):
            use(mark)


class Memory(nn.Module):
    """State behind __getattr__ and __setattr__, as spiking networks keep their potentials."""

    def __init__(self, resets: bool) -> None:
        super().__init__()
        self.layer, self.resets = linear(), resets
        self._memories: dict[str, Any] = {"v": 0.0}

    def __getattr__(self, name: str) -> Any:
        memories = self.__dict__.get("_memories", {})
        return memories[name] if name in memories else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        memories = self.__dict__.get("_memories", {})
        memories.__setitem__(name, value) if name in memories else super().__setattr__(name, value)

    def reset(self) -> None:
        self.v: Any = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.resets:
            self.reset()
        for _ in range(2):
            self.v = self.v + (self.layer(x) - self.v) / 2
        return torch.sigmoid(self.v)


@pytest.mark.parametrize("resolve", [False, True])
def test_state_behind_getattr_that_forward_resets_is_planned_once_and_such_that_lasts_is_refused(resolve):
    with pytest.raises(ExecutionError, match="state that begins anew in each step is reset by forward itself"):
        planned(Memory(resets=False), x(), resolve=resolve)
    model = Memory(resets=True)
    plain = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="_memories"):
        trained = planned(model, x(), resolve=resolve)
    for data in (x(), x(), x()):
        assert equal(step(plain, data), step(trained, data))
        if resolve:
            plain.reset()
            trained.reset()
    assert len(trained.rematerialization.plans) == 1


def pruned(layer: Any) -> None:
    prune.l1_unstructured(layer, "weight", 0.3)


@pytest.mark.parametrize(
    ("hook", "change"), [(pruned, pruned), (torch.nn.utils.spectral_norm, torch.nn.utils.remove_spectral_norm)]
)
def test_a_weight_that_hooks_compute_is_read_after_a_call_as_its_mark_says_and_may_be_pruned_or_removed(hook, change):
    models: list[Any] = [Made(lambda s, x: s.layer(x).tanh(), layer=linear()) for _ in range(2)]
    model, plain = models
    hook(model.layer)
    hook(plain.layer)
    plain.load_state_dict(model.state_dict())
    with pytest.warns(UserWarning, match="attribute weight"):
        trained = planned(model, x(), resolve=True)

    def train() -> None:
        for data in (x(), x()):
            for one in (plain, trained):
                one.zero_grad()
                one(data).sum().backward()
                torch.optim.SGD(one.parameters(), 0.1).step()
        assert equal(list(trained.parameters()), list(plain.parameters()))

    train()
    layer: Any = trained.layer
    with pytest.raises(ExecutionError, match=r"call the model once within torch.no_grad\(\) and in evaluation mode"):
        layer.weight.abs()
    data = x()
    for one in (plain, trained):
        one.eval()
        with torch.no_grad():
            one(data)
        one.train()
    assert torch.equal(layer.weight, plain.layer.weight)
    for one in (plain, trained):
        change(one.layer)
    train()


QUEUE, APPEND = queue.SimpleQueue(), [].append
PUT = QUEUE.put  # into which nobody looks


class Keeps(torch.autograd.Function):
    """Puts its result, and the gradient, into a queue."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, keeps: bool) -> torch.Tensor:
        ctx.keeps = keeps
        return x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if ctx.keeps:
            PUT(gradient * 2)
        return gradient, None


@torch.library.custom_op("test_changing_forwards::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


sine.register_fake(torch.empty_like)
LEAVING: dict[str, Callable[[torch.Tensor], Any]] = {
    "by a method of a list": lambda y: APPEND(y.mean().expand(2).chunk(2)[0]),
    "under a name that is computed": lambda y: globals().update({"".join(["TE", "RM"]): y.sin()}),
    "of a custom function that gives its input": lambda y: PUT(Keeps.apply(y, False)),
    "of a checkpoint": lambda y: PUT(checkpoint(torch.sin, y, use_reentrant=False)),
    "of vmap": lambda y: PUT(torch.func.vmap(torch.sin)(y)),
    "within vmap": lambda y: torch.func.vmap(lambda row: (PUT(row.sin()), row)[1])(y),
    "of jvp": lambda y: PUT(torch.func.jvp(torch.sin, (y,), (y,))[1]),
    "of grad": lambda y: PUT(torch.func.grad(lambda y: y.sin().sum())(y)),
    "of a compiled function": lambda y: PUT(torch.compile(torch.sin, backend="eager")(y)),
    "of a custom operator": lambda y: PUT(sine(y)),
    "detached": lambda y: PUT(y.detach()),
    "a view": lambda y: PUT(y.T),
    "a constant": lambda y: PUT(torch.tensor([1.0])),
}


@pytest.fixture(autouse=True)
def emptied() -> Iterator[None]:
    yield
    while not QUEUE.empty():
        QUEUE.get()


LEAVE = ("of a custom function that gives its input", "within vmap", "detached")


@pytest.mark.parametrize("name", thorough_but(LEAVING, *LEAVE))
def test_a_tensor_that_stays_alive_where_no_name_leads_is_refused(name):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        LEAVING[name](y)
        self.last = y.cos()  # is marked
        return y.tanh()

    words = r"forward or the loss leaves a tensor of shape \S+( 4\]| 8\])?, made at test_ch.* in an object outside of"
    with pytest.raises(CaptureError, match=words):
        planned(Made(forward, layer=linear()), x())


@pytest.mark.parametrize("choose", [lambda self, x: self.layer.weight, thorough(lambda self, x: x)])
def test_a_parameter_and_an_input_that_are_left_are_refused(choose):
    model = Made(lambda s, x: (s.layer(x), PUT(choose(s, x)))[0], layer=linear())
    with pytest.raises(CaptureError, match=r"leaves a tensor of shape \[\d, 8\] in an object outside"):
        planned(model, x())


LEFT_IN_BACKWARD: dict[str, Callable[[torch.Tensor], Any]] = {
    "a gradient, by a hook": lambda y: y.register_hook(PUT),
    "computed by a hook": lambda y: y.register_hook(lambda g: PUT(g * 2)),
    "by a custom function": lambda y: Keeps.apply(y, True),
}


HOOKS = ["register_full_backward_hook", "register_full_backward_pre_hook"]


@pytest.mark.parametrize(
    "name", thorough_but([*LEFT_IN_BACKWARD, *HOOKS], "computed by a hook", "by a custom function", HOOKS[0])
)
def test_a_tensor_that_a_backward_pass_leaves_where_no_name_leads_is_refused(name):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        z = LEFT_IN_BACKWARD[name](y)
        return (z if isinstance(z, torch.Tensor) else y).tanh()

    model = Made(forward, layer=linear())
    if name not in LEFT_IN_BACKWARD:  # a hook of a module
        model = nn.Sequential(linear(), nn.Tanh(), linear())
        getattr(model[1], name)(lambda module, *gradients: PUT(gradients[-1]))
    words = r"backward of a custom Function leaves a tensor of shape \[4, 8\], made in the backward pass of what is"
    with pytest.raises(CaptureError, match=rf"gradient hook or the {words} computed (at test_changing_fo|in '2')"):
        planned(model, x())


@pytest.mark.parametrize("value", [lambda g: g, lambda g: True])
def test_what_a_backward_pass_writes_on_a_parameter_is_refused(value):
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y.register_hook(lambda g: setattr(self.layer.weight, "seen", value(g)))
        return y.sin()

    with pytest.raises(CaptureError, match=r"gradient hook writes the attribute 'seen' .* by a hook on the parameter"):
        planned(Made(forward, layer=linear()), x())


def test_gradients_that_a_hook_on_a_parameter_keeps_are_those_of_plain_pytorch():
    model, kept = linear(), []
    model.weight.register_hook(kept.append)
    trained = planned(model, x())
    assert kept == []
    for one in (trained, model):
        one(torch.ones(4, 8)).sum().backward()
    assert torch.equal(*kept)


def test_gradient_hooks_that_hold_tensors_are_no_obstacle():
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        y, scale = self.layer(x), x.abs().mean()
        y.register_hook(lambda gradient: gradient * scale * y.detach().sign())
        y.register_hook(functools.partial(torch.mul, scale.exp()))
        return y.sin()

    assert_like_plain(planned(Made(forward, layer=linear()), x()), x())
