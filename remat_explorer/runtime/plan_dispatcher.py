"""What a rematerialized model does in a training step: which plan runs, and when another one is made.

A function that a loop assigned to ``forward`` is asked once (`ForwardProbe`) whether it calls the forward that was
there, which runs the plan.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import MethodType
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch._compile import _disable_dynamo

from remat_explorer.capture import (
    BrokenAssumption,
    detached_inputs,
    reshard,
    shard_groups,
    store_placeholders,
    tensors_in,
)
from remat_explorer.documents import write_text
from remat_explorer.errors import ExecutionError
from remat_explorer.runtime.call_signature import (
    Arguments,
    ExampleInputs,
    Signature,
    counts_to_tensors,
    paths_of,
    with_gradients_of,
)
from remat_explorer.runtime.plan_mismatch import (
    difference_of_inputs,
    difference_of_models,
    difference_of_surroundings,
)
from remat_explorer.runtime.preconditions import require_first_call, require_plain_surroundings, require_plannable
from remat_explorer.runtime.random_state import RandomStates
from remat_explorer.runtime.size_variants import SizeVariants, differ_only_in_sizes
from remat_explorer.runtime.step_planner import AnySolution, StepPlanner, TrainingPlan, agree_on_plan
from remat_explorer.runtime.training_run import TrainingRun, train
from remat_explorer.solvers import Budget, is_relative, is_smallest

MAX_BRANCH_PLANS = 8  # plans that are made at most where truth values are read: more are made if ``resolve`` is set
MAX_SIZE_VARIANTS = 64  # plans carried over to other sizes that are kept; each takes some MiB of the host's memory
_CALLER = 7  # from where a warning is given to the call of the model
FORWARD_NOT_CALLED = (
    "the forward that was assigned to the rematerialized model does not call the one that was there, so no plan ran. "
    "Assign it to the model before rematerialize, or let it call that forward"
)
_OTHER_CONTENT = "Such inputs need a plan of their own: rematerialize(..., resolve=True) makes one, and keeps both"
_COUNTS = (
    "Forward changes this buffer, so that steps to come read yet others. Compute with it as a tensor, as in "
    "`queue.index_copy_(0, (self.at + torch.arange(n)) % size, new)`; give BatchNorm a number as momentum; where few "
    "numbers come again and again, rematerialize(..., resolve=True) keeps a plan for each"
)


class PlanDispatcher:
    """What a rematerialized model does in a training step, found as its attribute ``rematerialization``.

    Args:
        model: the person's own; parameters, buffers and submodules are shared with it.
        planner: how to plan.
        planned: the first plan.
        resolve: whether to plan anew for inputs that no plan serves, or after the model was changed.
        example: what the first plan was made for; kept until a plan has run.

    Attributes:
        plans: those that were made, in the order in which they last ran.
        training: whether the model was in training mode when the first plan was made, or ran.
        hooks: what was registered on the rematerialized model, which runs around a plan. Hooks of the model itself
            are part of it.
        assigned: what was assigned to ``forward`` of the rematerialized model, which is called in its place; or None.
        replaced: forwards of the model that such a function has taken the place of, by what loops got for them.
        calls: how many forward passes there were.
        has_run: whether a plan has run.
        runs: passes by plans that somebody holds.
    """

    def __init__(
        self,
        model: nn.Module,
        planner: StepPlanner,
        planned: TrainingPlan,
        resolve: bool,
        example: ExampleInputs | None = None,
    ) -> None:
        self.example = example
        self.model, self.planner, self.resolve = model, planner, resolve
        self.first, self.plans = planned, [planned]
        self.training = model.training
        self.hooks: dict[str, Any] = {}
        self.assigned: Callable[..., Any] | None = None
        self.replaced: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.calls, self.has_run = 0, False
        self.runs: WeakSet[TrainingRun] = WeakSet()
        self._warned = False
        self._probe = ForwardProbe()
        self._forward_was_replaced = False  # whether the first plan is of a forward that has been replaced since

    @property
    def solution(self) -> AnySolution:
        """The solution that ran last, or will run first: a `Solution`, or a `TransferSolution` if it sends values."""
        return self.plans[-1].solution

    @property
    def waiting_bytes(self) -> int:
        """What a forward pass by the plan of `solution` leaves in memory, its outputs included, for its backward pass.

        The budget is for one forward pass and its backward pass. Each other call of the model whose backward pass is
        still to come takes so much more.
        """
        return self.plans[-1].code.saved_bytes

    @property
    def source(self) -> str:
        """The Python that runs, forward and backward, with the plan's statements as comments."""
        return self.plans[-1].code.source

    def save_source(self, path: str | Path) -> Path:
        """Write `source` to a file, atomically."""
        return write_text(path, self.source)

    @_disable_dynamo  # inside of what torch.compile traces, a plan runs as it is
    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A forward pass: by a plan where gradients are wanted, else as the model itself does it.

        None are wanted in evaluation mode, where they are switched off, and where neither a parameter nor an input
        requires one, as in a network that is frozen while another one is trained.

        Raises:
            ExecutionError: if there is no plan for the inputs or for the model as it is now, and none shall be made.
        """
        self.calls += 1
        self._probe.plan_reached()
        evaluating = (self.training and not self.model.training) or not torch.is_grad_enabled()
        if evaluating or not self._wants_gradients(args, kwargs):
            require_first_call(self.model, planned=False)
            return self._plain(args, kwargs)
        require_plain_surroundings(self.model, tensors_in((args, kwargs)))
        require_first_call(self.model, planned=True)
        if self.plans[-1].processes is not None:
            reshard(self.model)
            shard_groups(self.model)  # which refuses what may have been switched since
        kwargs = counts_to_tensors(kwargs)
        processes = self.plans[-1].processes
        if processes is None:
            planned = self._plan_for(args, kwargs)
        else:
            planned = agree_on_plan(processes, lambda: self._plan_for(args, kwargs), attrgetter("digest"))
        if not self.has_run:
            self.has_run, self.training = True, self.model.training
        args, kwargs = planned.convention.apply(args, kwargs)
        if not self._warned and any(run.is_waiting for run in self.runs):
            self._warn_of_several_calls(planned)
        tensors = tensors_in((args, kwargs))
        outputs = train(planned.code, self.model, detached_inputs(args, kwargs), tensors, self.runs.add)
        if planned.left_tensors:
            store_placeholders(self.model, planned.left_tensors)
        return planned.code.program.returned.filled(outputs)

    def calls_plan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether what is assigned to ``forward`` calls the one that it got when it is called with these inputs."""
        return self.assigned is None or self._probe.calls_plan(self.assigned, self.model, args, kwargs)

    def replace_forward(self, rematerialized: nn.Module) -> None:
        """Plan what is assigned to ``forward`` in place of the model's own, which it does not call in training.

        Args:
            rematerialized: the model whose attribute this is.

        Raises:
            ExecutionError: if a plan has run already, or was given, so that none can be made.
        """
        if self.has_run or self.planner.budget is None:
            raise ExecutionError(FORWARD_NOT_CALLED)
        assigned, own = self.assigned, self.model.forward
        assert assigned is not None
        of_it = isinstance(assigned, MethodType) and assigned.__self__ is rematerialized
        vars(self.model)["forward"] = MethodType(assigned.__func__, self.model) if of_it else assigned
        self.assigned = None
        self.replaced[type(rematerialized).__dict__["forward"].renew(self.model)] = own
        self._forward_was_replaced = True

    def _wants_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a parameter or an input requires a gradient."""
        return self.plans[-1].state.is_trained() or any(
            tensor.requires_grad
            for tensors in (self.model.parameters(), tensors_in((args, kwargs)), self.model.buffers())
            for tensor in tensors
        )

    def _plan_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TrainingPlan:
        if not self.has_run:
            self._before_first_step(args, kwargs)
        planned, broken = self._find_plan(args, kwargs)
        if planned is not None:
            self.plans.remove(planned)
        else:
            planned = self._new_plan(args, kwargs, broken)
        self.plans.append(planned)
        self._forget_unused()
        return planned

    def _find_plan(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[TrainingPlan | None, BrokenAssumption | None]:
        """A plan that serves these inputs, if there is one; else what one would read out of them otherwise."""
        broken: BrokenAssumption | None = None
        called, now, convention = (args, kwargs), None, None
        for planned, exactly in self._candidates():
            if now is None or planned.convention is not convention:  # plans for several sizes share it
                convention, called = planned.convention, planned.convention.apply(args, kwargs)
                now = Signature.of(*called, self.model)
            fits = planned.signature.matches(now)
            if not exactly:
                fits = not fits and planned.signature.serves_with_fewer(now)  # each plan is read for once
            if fits and planned.state.is_unchanged():
                broken = planned.broken_assumption(self.model, *called)
                if not broken:
                    return planned, None
        return None, broken

    def _forget_unused(self) -> None:
        """Drop the longest unused of the plans that were carried over to other sizes, where these are many."""
        carried_over = [planned for planned in self.plans if not planned.measured]
        for planned in carried_over[: max(0, len(carried_over) - MAX_SIZE_VARIANTS)]:
            self.plans.remove(planned)

    def _new_plan(self, args: tuple[Any, ...], kwargs: dict[str, Any], broken: BrokenAssumption | None) -> TrainingPlan:
        last = self.plans[-1].state
        if last.has_moved(last.current()):
            return self.planner.plan(self.model, *self._with_gradients(args, kwargs))
        limit = self._budget_anew()
        if self.resolve or not broken:
            variants = SizeVariants(self.planner, self.model, self.plans, limit, self.resolve)
            if (planned := variants.plan(args, kwargs)) is not None:
                return planned
        if broken is not None and self._may_plan_branch(broken):
            warnings.warn(f"{broken}. It is planned anew, once, and both plans are kept", stacklevel=_CALLER)
            return self.planner.plan(self.model, *self._with_gradients(args, kwargs), within=limit)
        if not self.resolve:
            what, advice = (broken, self._advice_on(broken)) if broken else self._difference(args, kwargs)
            raise ExecutionError(f"{what}. {advice}")
        return self.planner.plan(self.model, args, kwargs, within=self.planner.budget or limit)

    def _budget_anew(self) -> Budget:
        """The bytes of the first plan, unless for another type or device; the smallest budget is that of each step."""
        asked, state = self.planner.budget, self.first.state
        if is_smallest(asked) or (is_relative(asked) and state.lies_elsewhere(state.current())):
            return asked  # type: ignore[return-value]
        return self.first.solution.budget

    def _with_gradients(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The inputs, of which those require a gradient that do so in the first plan; not where each has its own."""
        called = self.first.convention.apply(args, kwargs)
        return (args, kwargs) if self.resolve else with_gradients_of(self.first.signature, *called)

    def _warn_of_several_calls(self, planned: TrainingPlan) -> None:
        """Warn, once, where one backward pass through several calls would give other digits than plain PyTorch."""
        autocast = planned.signature.autocast
        if autocast.types and autocast.keeps_casts:
            low = str(autocast.types[0][1]).removeprefix("torch.")
            what = f"if both calls are in one torch.autocast, plain PyTorch adds the gradients of a weight in {low}"
            advice = "Give each call a torch.autocast of its own, or cache_enabled=False; or call"
        elif name := planned.code.reused_parameter:
            what = f"one pass uses {name!r} several times, and plain PyTorch adds its gradients in another order"
            advice = "Call"
        else:
            return
        self._warned = True
        warnings.warn(
            f"the model is called before the backward pass of an earlier call. If one backward pass goes through both, "
            f"gradients may differ from plain PyTorch's as sums that are rounded do: {what}. {advice} backward() for "
            "each call, or the model once for all inputs",
            stacklevel=_CALLER - 1,
        )

    def _may_plan_branch(self, broken: BrokenAssumption) -> bool:
        """Whether it is planned for the other of two truth values without being asked to."""
        made = sum(planned.measured for planned in self.plans)  # not those that were carried over to other sizes
        return not self.resolve and broken.is_truth and self.planner.budget is not None and made < MAX_BRANCH_PLANS

    def _advice_on(self, broken: BrokenAssumption) -> str:
        """What to do where another number is read."""
        results = self.plans[-1].code.program.results
        changed = {result.name for result in results if result.kind == "buffer"}
        return _COUNTS if broken.buffers & changed else _OTHER_CONTENT

    def _before_first_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Plan anew where the loop has set up something since; it may have added parameters, but taken none away."""
        example, self.example = self.example, None
        if self._forward_was_replaced:
            self._forward_was_replaced = False
            self._replan(*((example and example.adapt_to_loop(args, kwargs)) or (args, kwargs)))
            return
        state, now = self.first.state, self.first.state.current()
        if example is None or self.resolve or self.planner.budget is None or state.has_moved(now):
            return
        called = self.first.convention.apply(args, kwargs)
        signature = Signature.of(*called, self.model)
        alike = differ_only_in_sizes(self.first.signature, signature)
        if alike and self.first.signature.surroundings == signature.surroundings and state.matches(now):
            return
        inputs = example.adapt_to_loop(*called) or example.adapt_to_loop(args, kwargs)  # without what has its default
        if inputs is None and state.lies_elsewhere(now):
            inputs = self._with_gradients(*called)
        if state.shapes.keys() <= now.shapes.keys() and inputs is not None:
            self._replan(*inputs)

    def _replan(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.first = self.planner.plan(self.model, args, kwargs)
        self.plans = [self.first]

    def _candidates(self) -> list[tuple[TrainingPlan, bool]]:
        """Every plan, the last one first; where none is made anew, they also serve inputs that need fewer gradients."""
        exactly = [(planned, True) for planned in reversed(self.plans)]
        return exactly if self.resolve else [*exactly, *((planned, False) for planned, _ in exactly)]

    def _difference(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
        """What the plan that ran last was not made for, and what to do."""
        planned = self.plans[-1]
        args, kwargs = planned.convention.apply(args, kwargs)
        now, state = Signature.of(args, kwargs, self.model), planned.state.current()
        if planned.state.lies_elsewhere(state):  # then so do the inputs
            return difference_of_models(planned.state, state)
        if not differ_only_in_sizes(planned.signature, now):
            return difference_of_inputs(planned.signature, now, planned.paths, paths_of(args, kwargs))
        if planned.signature.surroundings != now.surroundings:
            return difference_of_surroundings(planned.signature, now)
        require_plannable(self.model)
        return difference_of_models(planned.state, state)

    def _plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As the model itself does it, with its loss where there is one."""
        output = self.model(*args, **kwargs)
        return output if self.planner.loss is None else self.planner.loss(output)


class ForwardProbe:
    """Asks each function once, by a call of it that ends where the plan would run.

    A function that does not call it runs to its end, as an evaluation does; random numbers and buffers are set back.
    """

    def __init__(self) -> None:
        self._function: Callable[..., Any] | None = None
        self._answer = self._asking = False

    def calls_plan(
        self, function: Callable[..., Any], model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """The answer for a function, of the model and of these inputs."""
        if self._function is not function:
            self._function, self._answer = function, self._ask(function, model, args, kwargs)
        return self._answer

    def plan_reached(self) -> None:
        """To be called where the plan would run."""
        if self._asking:
            raise _PlanReached

    def _ask(
        self, function: Callable[..., Any], model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        devices = {torch.device("cpu"), *(tensor.device for tensor in model.parameters())}
        generators = [RandomStates(device) for device in devices]
        states = [generator.get() for generator in generators]
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        self._asking = True
        with torch.no_grad():
            try:
                function(*args, **kwargs)
            except _PlanReached:
                return True
            finally:
                self._asking = False
                for generator, state in zip(generators, states, strict=True):
                    generator.set(state)
                for buffer, before in buffers:
                    buffer.copy_(before)
        return False


class _PlanReached(BaseException):
    """The plan would run; no ``except Exception`` of the function stops it."""
