"""The one line that brings a schedule into a training loop, and the module that it returns.

`rematerialize` makes a `RematerializedModule`: the model that was given, with another ``forward``, with hooks of its
own, and with a ``training_step``, where it has one as models of Lightning do, that refuses to train without the plan.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import MethodType
from typing import Any, TypeVar
from weakref import WeakSet

import torch
from torch import nn

from remat_explorer.capture import Loss, ProcessGroup, require_capturable
from remat_explorer.entry_checks import Seconds, require_arguments
from remat_explorer.errors import ArgumentError, ExecutionError, QuantityError, shown
from remat_explorer.offload import LINKS, Transfers, TransferSolution
from remat_explorer.runtime.call_signature import ExampleInputs, counts_to_tensors
from remat_explorer.runtime.copies import HOST, Tier
from remat_explorer.runtime.plan_dispatcher import FORWARD_NOT_CALLED, PlanDispatcher
from remat_explorer.runtime.preconditions import require_plain_surroundings, require_plannable
from remat_explorer.runtime.step_planner import StepPlanner, agree_on_plan
from remat_explorer.solvers import (
    REQUESTED,
    TRANSFER_STRATEGIES,
    Budget,
    Progress,
    Solution,
    require_budget,
    require_meaning,
)

ALONE = "optimal"  # the strategy of whoever names none, and "offload" in its place where values are sent


def rematerialize(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    budget: Budget | None = None,
    loss: Loss | None = None,
    strategy: str = "optimal",
    solution: Solution | TransferSolution | str | Path | None = None,
    *,
    resolve: bool = False,
    optimizer: str | None = None,
    time_limit: Seconds = 60.0,
    solver: str = "highs",
    on_progress: Callable[[Progress], None] | None = None,
    cache: bool = False,
    budget_means: str = REQUESTED,
    retain_graph: bool = False,
    offload: str | float | Transfers | None = None,
    tier: str = HOST,
    folder: str | Path | None = None,
) -> RematerializedModule:
    """A drop-in for ``model`` whose training steps stay within a memory budget, with the gradients of plain PyTorch.

    It has the model's class, attributes, parameters and buffers, under the same names; optimizers, gradient clipping
    and accumulation, gradient scaling, `state_dict`, `train()` and `eval()`, `.to(...)` and DistributedDataParallel
    (around it) work as before, and so do Trainer of transformers, Lightning, accelerate and peft (docs/training.md).
    Buffers are updated once, and dropout draws what plain PyTorch would draw. Gradients reach autograd as the plan
    makes them, so that hooks run, and are sent to other processes, while it goes on.

    In evaluation mode, and where gradients are switched off, the model runs as it is. So does ``model`` itself, which
    shares all attributes: an assignment to one is an assignment to the other.

    A plan is for the model as it is in the first step. What forward reads of it, such as attributes, hooks and modes,
    is compared at every step; if it has changed, the step raises an ExecutionError that names it, unless ``resolve`` is
    set or it is a tensor that is no buffer, as a cache is. What a training loop sets up between here and the first
    step, such as autocast, modes, ``config.use_cache`` and an input ``num_items_in_batch``, is planned anew then,
    within ``budget``; set up before, it is planned once.

    Smaller batches and shorter sequences than those of ``args``, such as the last batch of an epoch, take the schedule
    that was found: the step is traced once more, which takes about as long as `remat_explorer.capture`, and the checker
    looks at the schedule with their sizes; where keeping everything fits, nothing is recomputed. Where operations are
    others for another size, as in a loop over time steps, the step is profiled, and planned anew, with a warning, if
    keeping everything does not fit. Every shape has a plan of its own, which is kept. An operation is assumed to need
    at most the workspace that it needed for the larger inputs. Inputs with a larger dimension are planned anew, within
    the same bytes, with a warning that says how long it took: begin with the largest.

    A model that `torch.distributed.fsdp.fully_shard` has sharded is rematerialized by all its processes at once. The
    budget is for one of them, which holds parts of parameters; the plan gathers them, and scatters gradients.

    Args:
        model: what to train, on the device where it shall be trained, in the mode in which it shall be trained.
        args, kwargs: inputs of forward, as large as they get. Those that require a gradient get one.
        budget: bytes, "2 GiB", or "60%" of what keeping everything takes for ``args``; "smallest" for the smallest with
            a known schedule, "40% of the way" for one between the two, or what `remat_explorer.minimum_budget` gave.
            Parameters and gradients are included. A
            gradient that waits in ``.grad`` for the next one to be added comes on top, and so does what a loss that is
            computed elsewhere takes for itself. It is for one forward pass and its backward pass: each other call
            whose backward pass is still to come takes the attribute ``rematerialization.waiting_bytes`` more.
        loss: from the model's output to a scalar tensor, which is then what the model returns; it must not read
            tensors that change from step to step. None returns what the model returns: a loss that is computed
            elsewhere, or, of an output that has a ``loss``, that loss (other tensors of such an output are None);
            `remat_explorer.loss_elsewhere` returns all of such an output, too.
        strategy, solver, on_progress: as for `remat_explorer.solve`.
        time_limit: seconds of searching, as for `remat_explorer.solve`. Tracing and profiling come before.
        solution: a solution of this model, or a solution file, instead of solving; ``budget`` is not needed then.
        resolve: plan anew, within ``budget``, for inputs that differ in more than sizes, and after a change of the
            model, of PyTorch's settings or of autocast; plans are kept. Otherwise that is an error. After ``.to(...)``,
            and where forward reads the other of two truth values out of its inputs, it is planned anew in any case.
        optimizer: "sgd", "momentum" or "adam" counts that optimizer's state within the budget.
        cache: take a kept schedule for the same profile, budget and strategy, if its search was proven or had as much
            time, and keep a new one. It is checked against the graph that is captured and measured here, like any
            other; a profile that was measured anew has other costs, and is solved for anew. A second start then takes
            little more than tracing the model.
        budget_means: "requested" or "reserved", as for `remat_explorer.solve`: what tensors have, or what PyTorch's
            allocator on a GPU is predicted to take for them. A given ``solution`` is then held against its budget.
        retain_graph: plan for ``backward(retain_graph=True)``, which otherwise has no effect on the model: what the
            forward pass leaves stays until a backward pass that does not retain it, and the budget includes that: "60%"
            is then of what keeping everything takes so, and "smallest" the least of a row of schedules.
        offload: also send values to the host, and fetch them before they are read: a rate for both ways, such as
            "25 GB/s", or bytes per second; a link of `remat_explorer.offload.LINKS`, such as "pcie4"; or `Transfers`.
            The strategy is then "offload", unless it is "offload-only". The rate decides what is sent; nothing is
            slowed down to it. If a copy fails, the step raises an error that names it, and the model is as before.
        tier: where copies lie: "host" for memory beside the budget, pinned for CUDA, or "disk" for files, on the CPU.
        folder: where those files lie, in a folder of their own that goes with the step; the system's by default.

    Raises:
        ArgumentError: if there is no such tier, or ``offload`` is given with what it does not go with.
        CaptureError: if the model has no static training graph.
        ExecutionError: if no schedule fits, with the smallest budget worth trying, or memory runs out; if forward
            changes an attribute in every pass, which would be stale; if the model is compiled or wrapped, or sharded by
            anything else; if the processes of a sharded one have different inputs.
        QuantityError: if ``offload`` is no bandwidth.
        SolutionError: if the solution is not this model's, or exceeds its budget with the workspace measured here, or
            with what is retained.

    >>> model = nn.Sequential(*(part for _ in range(5) for part in (nn.Linear(64, 64), nn.Tanh())))
    >>> x = torch.randn(512, 64)
    >>> trained = rematerialize(model, (x,), budget="80%")
    >>> trained(x).square().mean().backward()
    >>> trained.state_dict().keys() == model.state_dict().keys()
    True
    >>> trained.rematerialization.solution.plan.peak <= trained.rematerialization.solution.budget
    True
    >>> trained(x[:300]).square().mean().backward()
    >>> least = rematerialize(model, (x,), budget="smallest", time_limit=4)
    >>> least.rematerialization.solution.budget < trained.rematerialization.solution.budget
    True
    >>> sending = rematerialize(model, (x,), budget="80%", time_limit=2, strategy="offload-only", offload="1000 GB/s")
    >>> sending(x).square().mean().backward()
    >>> sending.rematerialization.solution.plan.sent_bytes > 0
    True
    """
    require_arguments(rematerialize, locals(), but=("model", "args", "offload"))
    require_budget(budget)
    require_capturable(model, args, kwargs)
    require_plannable(model)
    require_plain_surroundings(model)
    _require_constant(loss)
    args, kwargs = tuple(args), counts_to_tensors(dict(kwargs or {}))
    require_meaning(budget_means, budget)
    planner = StepPlanner(
        budget, loss, strategy, solution, time_limit, solver, optimizer, on_progress, cache, budget_means
    )
    transfers = _transfers_of(offload, solution, strategy, retain_graph, budget_means)
    if transfers is not None and strategy not in TRANSFER_STRATEGIES:
        planner = dataclasses.replace(planner, strategy="offload")
    places = {"transfers": transfers, "tier": Tier(tier, folder)}
    planner = dataclasses.replace(planner, retain_graph=retain_graph, **places)
    processes = ProcessGroup.of(model)
    if processes is None:
        planned = planner.plan(model, args, kwargs)
    else:
        planned = agree_on_plan(processes, lambda: planner.plan(model, args, kwargs), attrgetter("digest"))
    if more := planned.code.program.returned.other_losses:
        warnings.warn(
            f"beside its loss the model returns {more} more that could be a loss, which a plan leaves out: it is None "
            "in a training step; loss=lambda output: output.loss + ... makes one of all",
            stacklevel=2,
        )
    return _rematerialized_module(PlanDispatcher(model, planner, planned, resolve, ExampleInputs.of(args, kwargs)))


def _transfers_of(
    offload: str | float | Transfers | None, solution: Any, strategy: str, retain_graph: bool, budget_means: str
) -> Transfers | None:
    """The transfers that are asked for, or those of a given solution, where everything else goes with them."""
    given_transfers = None
    if isinstance(solution, TransferSolution):
        given_transfers = solution.transfers
    elif isinstance(solution, str | Path) and (sending := TransferSolution.options_in(solution)):
        given_transfers = sending[0]
    if offload is None and given_transfers is None:
        if strategy in TRANSFER_STRATEGIES:
            raise ArgumentError(f'strategy={strategy!r} needs a bandwidth; give one, such as offload="25 GB/s"')
        return None
    if offload is not None and solution is not None:
        raise ArgumentError("offload=... is for a plan that is searched for; leave it out where solution=... is given")
    if strategy not in (ALONE, *TRANSFER_STRATEGIES):
        names = " or ".join(map(repr, TRANSFER_STRATEGIES))
        raise ArgumentError(f"strategy={strategy!r} sends nothing; with offload={shown(offload)} it is {names}")
    for name, given in (
        ("retain_graph=True", retain_graph),
        (f"budget_means={budget_means!r}", budget_means != REQUESTED),
    ):
        if given:
            raise ArgumentError(f"{name} is not for plans that send values; leave it or offload=... out")
    if given_transfers is not None:
        return given_transfers
    try:
        if isinstance(offload, bool) or not isinstance(offload, str | float | int | Transfers):
            raise QuantityError("")
        return Transfers.of(offload)
    except QuantityError:
        raise QuantityError(
            f'offload={shown(offload)} is no bandwidth; write "25 GB/s", or one of: {", ".join(sorted(LINKS))}'
        ) from None


def _require_constant(loss: Loss | None) -> None:
    """Labels that a loss reads from around it would be those of the first step for ever."""
    if not inspect.isfunction(loss):
        return
    around = inspect.getclosurevars(loss)
    for name, value in {**around.globals, **around.nonlocals}.items():
        if isinstance(value, torch.Tensor):
            raise ExecutionError(
                f"the loss reads the tensor {name!r} of shape {list(value.shape)} from around it, whose content would "
                "stay that of now in every step; leave out loss=... and compute the loss from what the model returns, "
                "or make the loss a part of the model, with the tensor as an input"
            )


class ForwardAttribute:
    """Gives ``forward`` of a rematerialized class, which looks like the model's, and takes what a loop assigns to it.

    Libraries look at the parameters of forward to choose columns of a data set, and put forward into a function of
    their own, such as accelerate with autocast around it. What is assigned is the rematerialized model's alone: a call
    of it runs that function, and the forward that it got runs the plan. It has no ``__wrapped__``, so that who takes
    such functions off again does not arrive at the model's own forward. What is assigned may also take the place of the
    model's forward, and call it only for evaluation, as trl's SFTTrainer does: `renew` is for this.
    """

    def __init__(self, model: nn.Module) -> None:
        self._function = _plan_runner(model.forward)

    def __get__(self, module: Any, owner: type | None = None) -> Callable[..., Any]:
        if module is None:
            return self._function
        assigned = module.rematerialization.assigned
        return MethodType(self._function, module) if assigned is None else assigned

    def __set__(self, module: Any, value: Any) -> None:
        own = getattr(value, "__func__", None) is self._function
        module.rematerialization.assigned = None if own else value

    def __delete__(self, module: Any) -> None:
        module.rematerialization.assigned = None

    def renew(self, model: nn.Module) -> Callable[..., Any]:
        """Look like the forward that the model has now; returns what loops got before."""
        before, self._function = self._function, _plan_runner(model.forward)
        return before


def _plan_runner(own: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the looks of a model's own forward that runs the plan, or what has taken its place."""

    def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        mine = module.rematerialization
        replaced = mine.replaced.get(forward)
        return mine.run(args, kwargs) if replaced is None else replaced(*args, **kwargs)

    return _with_signature_of(own, forward)


def _with_signature_of(own: Callable[..., Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    made: Any = functools.update_wrapper(forward, own, updated=())
    del made.__wrapped__
    try:
        signature = inspect.signature(own)
        this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        made.__signature__ = signature.replace(parameters=[this, *signature.parameters.values()])
    except (TypeError, ValueError):  # not every callable has one that can be read
        pass
    return made


_ModuleClass = TypeVar("_ModuleClass", bound=type[nn.Module])
_FLAGS = ("_is_full_backward_hook",)
_HOOKS = (
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_pre_hooks", "_backward_hooks", *_FLAGS),
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
)


def _empty_hooks() -> dict[str, Any]:
    """What torch keeps the hooks of a module in, by the names of its attributes, without any."""
    return {name: None if name in _FLAGS else OrderedDict() for name in _HOOKS}


def _with_own_hooks(kind: _ModuleClass) -> _ModuleClass:
    """The class, with the hooks of its modules in ``rematerialization.hooks`` in place of their ``__dict__``."""
    for name in _HOOKS:
        setattr(kind, name, _own_hook(name))
    return kind


def _own_hook(name: str) -> property:
    def get(module: Any) -> Any:
        return module.rematerialization.hooks[name]

    def put(module: Any, value: Any) -> None:
        module.rematerialization.hooks[name] = value

    return property(get, put)


_TRAINING_STEP = "training_step"


def _requiring_plan(method: Callable[..., Any]) -> Callable[..., Any]:
    """``training_step`` of the model's own class, which refuses to train in it where the module itself was not called.

    It computes what it logs, so it is no part of a plan; forward is.
    """

    @functools.wraps(method)
    def training_step(module: Any, *args: Any, **kwargs: Any) -> Any:
        before = module.rematerialization.calls
        result = method(module, *args, **kwargs)
        if module.training and torch.is_grad_enabled() and module.rematerialization.calls == before:
            name = type(module).__name__
            raise ExecutionError(
                f"training_step of {name} does not call the module itself, whose forward the plan replaces, so it "
                "trains without a plan. Write self(x) in it where it calls a network of its own, or rematerialize that "
                "network in place: self.network = rematerialize(self.network, ...)"
            )
        return result

    return training_step


_SHARDING = "_get_fsdp_state"


@_with_own_hooks
class RematerializedModule(nn.Module):
    """Comes before the model's own class, and changes what a call does.

    It has the same ``__dict__`` as the model, so that an assignment to one is an assignment to the other: submodules,
    parameters, buffers, modes and plain attributes alike. Hooks that are registered on it are its own, and so is what
    is assigned to ``forward``. Its class has the model's name, by which libraries know models.
    """

    rematerialization: PlanDispatcher

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A forward pass, as `PlanDispatcher.run`, with the hooks that were registered here around it."""
        mine = self.rematerialization
        if mine.assigned is None:
            return self._call_impl(*args, **kwargs) if any(mine.hooks.values()) else mine.run(args, kwargs)
        if not (self.training and torch.is_grad_enabled()):
            return self._call_impl(*args, **kwargs)
        if not mine.calls_plan(args, kwargs):
            mine.replace_forward(self)
            return self(*args, **kwargs)  # by the plan
        before = mine.calls
        output = self._call_impl(*args, **kwargs)
        if mine.calls == before:  # it has gone through it with other inputs
            raise ExecutionError(FORWARD_NOT_CALLED)
        return output

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__":  # in this way torch registers parametrizations and shards
            if value.__name__.startswith("FSDP"):
                raise ExecutionError(
                    "a plan gathers parameters itself, so it is made for a model that is sharded already: call "
                    "fully_shard for the model and its parts first, and then rematerialize it"
                )
            raise ExecutionError(
                f"a rematerialized model cannot become a {value.__name__}: do that to the model before rematerialize"
            )
        super().__setattr__(name, value)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Refused.

        Raises:
            ExecutionError: always.
        """
        raise ExecutionError("the plan replaces what torch.compile would run; train with it as it is")

    def __deepcopy__(self, memo: dict[int, Any]) -> RematerializedModule:
        """A copy with parameters of its own that shares the plans."""
        mine = self.rematerialization
        theirs = copy.copy(mine)
        made = memo[id(self)] = _empty_module(theirs)  # the model's attributes may lead back here
        theirs.model, theirs.runs = copy.deepcopy(mine.model, memo), WeakSet()
        object.__setattr__(made, "__dict__", theirs.model.__dict__)
        states = [planned.state.of_copy(theirs.model) for planned in mine.plans]
        pairs = zip(mine.plans, states, strict=True)
        theirs.plans = [dataclasses.replace(planned, state=state) for planned, state in pairs]
        theirs.hooks, theirs.assigned = copy.deepcopy((mine.hooks, mine.assigned), memo)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        model = self.rematerialization.model
        name = type(model).__name__
        warnings.warn(
            f"a rematerialized {name} is pickled as the {name} that it was, without its plan: rematerialize again "
            "where it is loaded",
            stacklevel=2,
        )
        return model.__reduce_ex__(protocol)


def _rematerialized_module(rematerialization: PlanDispatcher) -> RematerializedModule:
    """The model of a `PlanDispatcher`, with its class, its attributes and its tensors, and another `forward`."""
    rematerialization.hooks = _empty_hooks()
    made = _empty_module(rematerialization)
    object.__setattr__(made, "__dict__", rematerialization.model.__dict__)
    return made


def _empty_module(rematerialization: PlanDispatcher) -> RematerializedModule:
    kind = type(rematerialization.model)
    own = {"rematerialization": rematerialization, "forward": ForwardAttribute(rematerialization.model)}
    own["__class__"] = property(lambda _: kind)  # as which it is pickled
    own |= {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    if callable(state := getattr(rematerialization.model, _SHARDING, None)):  # torch knows the model by its identity
        own[_SHARDING] = lambda _: state()
    if callable(method := getattr(kind, _TRAINING_STEP, None)):
        own[_TRAINING_STEP] = _requiring_plan(method)
    return object.__new__(type(kind.__name__, (RematerializedModule, kind), own))
