"""A random program trained as it is and by plans: after each act of it, whatever a person can see must be equal."""

import random
import re
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

import remat_explorer as rx
from remat_explorer.capture.dry_run import TensorPlaceholder
from remat_explorer.capture.model_placement import exact_kernels
from remat_explorer.errors import RematError
from remat_explorer.plan import Plan
from remat_explorer.runtime.forward_backward import ForwardBackward
from remat_explorer.runtime.plan_dispatcher import PlanDispatcher
from tests.runtime.random_programs import GLOBAL, Spec, World, build
from tests.runtime.random_schedules import random_schedule, solution_of

WARNED = {  # words of a warning, and the differences that it announces
    "gradients may differ from plain PyTorch's": r"\.gradient\.values: by [\d.]+e-",  # less than 1e-4
    "such attributes are not there": r"^(?!.*\.(parameters|buffers)\.).*(only in plain|mark instead)",
    "A plan leaves its inputs as they are": r"^now\.batches\.\d+\.\w+: only in the plan",
}
Seen = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """How a program ended.

    It was "equal", "refused", "warned" (a difference that a warning had announced), "silent", "raw" (an error that is
    none of ours), or "wrong" (plain PyTorch does not run the program).
    """

    outcome: str
    words: str = ""  # the error, or what differs
    steps: int = 0  # by plans that were equal, each with a random schedule after its first step


def play(spec: Spec) -> Verdict:
    """Train a program as it is, then by plans with random schedules, and compare after each act."""
    before = torch.get_rng_state()
    kept = {**GLOBAL}
    try:
        with exact_kernels():
            try:
                expected = _as_it_is(spec)
            except Exception as error:
                return Verdict("wrong", f"{type(error).__name__}: {error}")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                verdict = _by_plans(spec, expected)
            assert get_proxy_mode() is None, "a trace is still on"
            told = [pattern for words, pattern in WARNED.items() if any(words in str(one.message) for one in caught)]
            if verdict.outcome == "silent" and any(re.search(pattern, verdict.words) for pattern in told):
                return replace(verdict, outcome="warned")
            return verdict
    finally:
        GLOBAL.clear()
        GLOBAL.update(kept)
        torch.set_rng_state(before)


def reduced(spec: Spec, verdict: Verdict) -> tuple[Spec, Verdict]:
    """A smaller program that ends in the same way."""
    for smaller in spec.smaller():
        found = play(smaller)
        if found.outcome == verdict.outcome:
            return reduced(smaller, found)
    return spec, verdict


def _as_it_is(spec: Spec) -> list[Seen]:
    world = build(spec)
    torch.manual_seed(spec.seed)
    return [_seen(world, {}), *(_seen(world, now) for now, _ in _acts(world, world.model, lambda now: None))]


def _by_plans(spec: Spec, expected: list[Seen]) -> Verdict:
    world, draw = build(spec), np.random.default_rng(spec.seed)
    torch.manual_seed(spec.seed)
    last, current, steps = _seen(world, {}), Seen(), 0
    try:
        batch = world.batch(0, spec.batch)
        trained = rx.rematerialize(world.model, (batch,), budget=2**40, strategy="checkpoint-all", resolve=True)
        found = differs(_seen(world, {}), expected[0]) or differs(_copied(batch), _copied(world.batch(0, spec.batch)))
        if found is not None:
            return Verdict("silent", f"after rematerialize: {found}")

        def before(now: Seen) -> None:
            nonlocal last, current
            last, current = _seen(world, now), now
            _shuffle(trained.rematerialization, draw)

        for (now, done), theirs in zip(_acts(world, trained, before), expected[1:], strict=True):
            if (found := differs(_seen(world, now), theirs)) is not None:
                return Verdict("silent", found, steps)
            steps += done
    except RematError as error:
        words = f"{type(error).__name__}: {error}"
        if (found := differs(_seen(world, current), last)) is not None:
            return Verdict("silent", f"refused, but left {found}; {words}", steps)
        return Verdict("refused", words, steps)
    except Exception as error:
        return Verdict("raw", f"{type(error).__name__}: {error}", steps)
    return Verdict("equal", "", steps)


def _shuffle(mine: PlanDispatcher, draw: np.random.Generator) -> None:
    """Give each plan that was made another, random schedule of its graph."""
    for place, planned in enumerate(mine.plans):
        graph = planned.solution.graph
        schedule = random_schedule(graph, int(draw.integers(2**31)), draw.random(), 0.3 * draw.random())
        halves = ForwardBackward.of(Plan.of(schedule), planned.code.program, torch.device("cpu"))
        mine.plans[place] = replace(planned, solution=solution_of(schedule), code=halves)


def _acts(world: World, call: Callable[..., Any], before: Callable[[Seen], None]) -> Iterator[tuple[Seen, int]]:
    """Run the phases; after each act comes what it made, and how many training steps it completed."""
    model, rows = world.model, world.spec.batch
    parameters = list(model.parameters())
    for place, phase in enumerate(world.spec.phases):
        torch.manual_seed(100 * world.spec.seed + place)
        frozen = parameters[::2] if phase == "some frozen" else parameters[1:] if phase == "all but one frozen" else []
        chosen = [parameter for parameter in frozen if parameter.requires_grad]
        for parameter in chosen:
            parameter.requires_grad_(False)
        passes = 2 if phase in ("two passes", "accumulation") else 1
        size = rows // 2 if phase.startswith("smaller") else rows
        batches = [world.batch(place + 50 * again, size) for again in range(passes)]
        batches[0]["x"].requires_grad_(phase == "gradient of the input")
        made: list[torch.Tensor] = []
        now = {"outputs": made, "batches": batches}
        without = phase == "evaluation" or phase.endswith(("no gradients", "without gradients"))
        model.train(phase != "evaluation")
        for number, batch in enumerate(batches, 1):
            before(now)
            with torch.set_grad_enabled(not without):
                made.append(call(batch))
            yield now, 0
            if without or (phase == "two passes" and number == 1):
                continue
            passed = made if phase == "two passes" else made[-1:]
            loss = sum(output.square().mean() if output.dim() else output for output in passed)
            if phase == "unused loss":
                loss = loss * 0 + sum(parameter.square().sum() for parameter in model.parameters())
            before(now)
            torch.as_tensor(loss + sum(part() for part in world.losses)).backward()
            yield now, len(passed)
            for kept in world.holders:
                kept().clear()
        model.train()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
        model.zero_grad()
        for parameter in chosen:
            parameter.requires_grad_()
        yield {}, 0


def _seen(world: World, now: Seen) -> Seen:
    """A copy of all that a person can look into."""
    visible = {
        name: _copied(thing() if callable(thing) and not isinstance(thing, nn.Module) else thing)
        for name, thing in world.visible.items()
    }
    drawn = [torch.get_rng_state(), hash(random.getstate()), str(np.random.get_state())]
    return {"model": _copied(world.model), "visible": visible, "now": _copied(now), "random": _copied(drawn)}


def _copied(thing: Any, above: frozenset[int] = frozenset()) -> Any:
    """Numbers, tensors with what they carry, and containers of them, as they are now."""
    if isinstance(thing, torch.Tensor):
        return _copied_tensor(thing)
    if isinstance(thing, str | int | float | bool | None):
        return thing
    if id(thing) in above:
        return "itself"
    above = above | {id(thing)}
    if isinstance(thing, dict):
        return {str(key): _copied(value, above) for key, value in thing.items()}
    if isinstance(thing, list | tuple | deque):
        return [_copied(value, above) for value in thing]
    if isinstance(thing, nn.Module):
        own = {name: value for name, value in vars(thing).items() if not name.startswith("_")}
        parts = {"parameters": thing._parameters, "buffers": thing._buffers, "modules": thing._modules, "own": own}
        return {name: _copied(part, above) for name, part in parts.items()}
    return _copied(vars(thing), above) if isinstance(thing, SimpleNamespace) else type(thing).__name__


def _copied_tensor(tensor: torch.Tensor) -> Any:
    if isinstance(tensor, TensorPlaceholder):
        return {"kind": "mark"}
    is_wrapped = torch._is_functional_tensor(tensor)  # pyright: ignore[reportPrivateImportUsage]
    if isinstance(tensor, FunctionalTensor | FakeTensor) or is_wrapped:
        return {"kind": "a tensor of a trace"}
    gradient = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    return {
        "kind": type(tensor).__name__,
        "values": tensor.detach().clone(),
        "requires_grad": tensor.requires_grad,
        "leaf": tensor.is_leaf,
        "gradient": None if gradient is None else _copied_tensor(gradient),
    }


def differs(mine: Any, theirs: Any, path: str = "") -> str | None:
    """The first place where what is seen differs, tensors in one bit or more, in words, or None."""
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return f"{path}: {mine.dtype} {list(mine.shape)} instead of {theirs.dtype} {list(theirs.shape)}"
        if mine.numpy().tobytes() == theirs.numpy().tobytes():
            return None
        return f"{path}: by {float((mine.double() - theirs.double()).abs().max()):.3g}"
    if type(mine) is not type(theirs):
        kinds = (one.get("kind", "dict") if isinstance(one, dict) else type(one).__name__ for one in (mine, theirs))
        return f"{path}: {' instead of '.join(kinds)}"
    if isinstance(mine, list):
        mine, theirs = dict(enumerate(mine)), dict(enumerate(theirs))
    if isinstance(mine, dict):
        for key in [*theirs, *mine]:
            if key not in mine or key not in theirs:
                return f"{path}.{key}: only in {'the plan' if key in mine else 'plain PyTorch'}"
        found = (differs(mine[key], theirs[key], f"{path}.{key}".lstrip(".")) for key in theirs)
        return next((one for one in found if one is not None), None)
    return None if mine == theirs else f"{path}: {mine!r} instead of {theirs!r}"
