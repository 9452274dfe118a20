"""A random program trained as it is and by plans: after each act of it, whatever a person can see must be equal."""

from __future__ import annotations

import random
import warnings
from collections import Counter, deque
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
from remat_explorer.capture.step.left_behind import LeftBehind
from remat_explorer.capture.step.placement import exact_kernels
from remat_explorer.errors import RematError
from remat_explorer.plan import Plan
from remat_explorer.runtime.halves import Halves
from remat_explorer.runtime.rematerialization import Rematerialization
from tests.runtime.random_programs import GLOBAL, Spec, World, build
from tests.runtime.random_schedules import random_schedule, solution_of

WARNED = (
    "gradients may differ from plain PyTorch's",
    "such attributes are not there",
)  # what a step may lack, in words
OF_A_TRACE = "a tensor of a trace"
Seen = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """How a program ended.

    Attributes:
        outcome: "equal", "refused", "warned" (something differs, and a warning had said so), "silent" or "raw".
        words: the error, or what differs.
        schedules: training steps by random schedules of a plan that were equal.
        after: how many acts were equal before a refusal.
    """

    outcome: str
    words: str = ""
    schedules: int = 0
    after: int = 0


def play(spec: Spec) -> Verdict:
    """Train a program as it is, then by plans with random schedules, and compare after each act."""
    before = torch.get_rng_state()
    kept = {**GLOBAL}
    try:
        with exact_kernels():
            return _played(spec)
    finally:
        GLOBAL.clear()
        GLOBAL.update(kept)
        torch.set_rng_state(before)


def plain(spec: Spec) -> list[Seen] | None:
    """What is to be seen before the first act of a program and after each, or None if PyTorch itself does not run it."""
    world = build(spec)
    torch.manual_seed(spec.seed)
    seen = [_seen(world, {})]
    try:
        for now in _acts(world, world.model, lambda: None):
            seen.append(_seen(world, now))
    except Exception:  # a drawn program that is wrong is no finding
        return None
    return seen


def _played(spec: Spec) -> Verdict:
    expected = plain(spec)
    if expected is None:
        return Verdict("no program")
    world, drawn = build(spec), Counter[str]()
    torch.manual_seed(spec.seed)
    seen = _seen(world, {})
    draw = np.random.default_rng(spec.seed)
    done = 0

    def look(now: Seen) -> Verdict | None:
        difference = differs(_seen(world, now), expected[done])
        if difference is None:
            return None
        told = [str(one.message) for one in caught if any(words in str(one.message) for words in WARNED)]
        return Verdict(
            "warned" if told and OF_A_TRACE not in difference else "silent", difference, drawn["steps"], done
        )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            batch = world.batch(0)
            trained = rx.rematerialize(world.model, (batch,), budget=2**40, strategy="checkpoint-all", resolve=True)
            if (found := look({})) is not None:
                return replace(found, words=f"after rematerialize: {found.words}")
            if (found := differs(_seen_batch(batch), _seen_batch(world.batch(0)))) is not None:
                return Verdict("silent", f"the example after rematerialize: {found}")
            mine = trained.rematerialization

            def before_a_step() -> None:
                drawn["steps"] += 1
                shuffle(mine, draw)

            for now in _acts(world, trained, before_a_step):
                done += 1
                if (found := look(now)) is not None:
                    return found
                seen = _seen(world, now)
        except RematError as error:
            left = differs(_seen(world, {}), {**seen, "now": {}, "random": None})
            words = f"{type(error).__name__}: {error}"
            if left is not None:
                return Verdict("silent", f"refused, but left {left}; {words}", drawn["steps"], done)
            return Verdict("refused", words, drawn["steps"], done)
        except Exception as error:
            if any(isinstance(one, RematError) for one in (error.__cause__, error.__context__)):
                return Verdict("refused", f"{type(error).__name__}: {error}", drawn["steps"], done)
            return Verdict("raw", f"{type(error).__name__}: {error}", drawn["steps"], done)
        finally:
            _forget_modes()
    return Verdict("equal", "", drawn["steps"], done)


def shuffle(mine: Rematerialization, draw: np.random.Generator) -> None:
    """Give each plan that was made another, random schedule of its graph."""
    for place, planned in enumerate(mine.plans):
        graph = planned.solution.graph
        schedule = random_schedule(graph, int(draw.integers(2**31)), draw.random(), 0.3 * draw.random())
        halves = Halves.of(Plan.of(schedule), planned.halves.program, torch.device("cpu"))
        mine.plans[place] = replace(planned, solution=solution_of(schedule), halves=halves)


def _acts(world: World, call: Any, before: Callable[[], None]) -> Iterator[Seen]:
    """Run the phases of a program; after each act comes what it made, and the loop sees to gradients as people do."""
    model = world.model
    parameters = list(model.parameters())
    for place, phase in enumerate(world.spec.phases):
        torch.manual_seed(100 * world.spec.seed + place)
        frozen = parameters[::2] if phase == "some frozen" else parameters[1:] if phase == "all but one frozen" else []
        chosen = [parameter for parameter in frozen if parameter.requires_grad]
        for parameter in chosen:
            parameter.requires_grad_(False)
        smaller = phase.startswith("smaller batch")
        batches = [world.batch(place, smaller)]
        if phase in ("two passes", "accumulation"):
            batches.append(world.batch(place + 50))
        if phase == "gradient of the input":
            batches[0]["x"].requires_grad_()
        made: list[torch.Tensor] = []
        if phase.endswith("no gradients") or phase.endswith("without gradients") or phase == "evaluation":
            model.train(phase != "evaluation")
            with torch.no_grad():
                made.append(call(batches[0]))
            model.train()
            yield {"outputs": made, "batches": batches}
        else:
            for batch in batches:
                before()
                output = call(batch)
                made.append(output)
                yield {"outputs": made, "batches": batches}
                if phase != "two passes":
                    _loss(world, output, phase).backward()
                    yield {"outputs": made, "batches": batches}
            if phase == "two passes":
                sum(_loss(world, output, phase) for output in made).backward()  # type: ignore[union-attr]
                yield {"outputs": made, "batches": batches}
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.1 * parameter.grad
        model.zero_grad()
        for parameter in chosen:
            parameter.requires_grad_()
        for kept in world.visible.values():  # as loops do before the next step
            if isinstance(kept, list | deque):
                kept.clear()
        yield {"outputs": [], "batches": []}


def _loss(world: World, output: torch.Tensor, phase: str) -> torch.Tensor:
    loss = output.square().mean() if output.dim() else output
    if phase == "unused loss":
        loss = loss * 0 + sum(parameter.square().sum() for parameter in world.model.parameters())
    return loss + sum(part() for part in world.losses)


def _seen(world: World, now: Seen) -> Seen:
    """A copy of all that a person can look into."""
    return {
        "model": _copied(world.model, set()),
        "visible": {
            name: _copied(thing() if callable(thing) and not isinstance(thing, nn.Module) else thing, set())
            for name, thing in world.visible.items()
        },
        "now": _copied(now, set()),
        "random": (torch.get_rng_state().clone(), random.getstate()[1][-1], int(np.random.get_state()[2])),
    }


def _seen_batch(batch: Any) -> Any:
    return _copied(batch, set())


def _copied(thing: Any, above: set[int]) -> Any:
    """Numbers, tensors with what they carry, and containers of them, as they are now."""
    if isinstance(thing, torch.Tensor):
        return _copied_tensor(thing)
    if isinstance(thing, str | int | float | bool | None | torch.Size | torch.dtype):
        return thing
    if id(thing) in above:
        return "itself"
    above = above | {id(thing)}
    if isinstance(thing, dict):
        return {str(key): _copied(value, above) for key, value in thing.items()}
    if isinstance(thing, list | tuple | deque):
        return [_copied(value, above) for value in thing]
    if isinstance(thing, nn.Module):
        own = {name: value for name, value in vars(thing).items() if not name.startswith("_") and name != "run"}
        parts = {"parameters": thing._parameters, "buffers": thing._buffers, "modules": thing._modules, "own": own}
        return {name: _copied(part, above) for name, part in parts.items()}
    if isinstance(thing, SimpleNamespace):
        return _copied(vars(thing), above)
    return type(thing).__name__


def _copied_tensor(tensor: torch.Tensor) -> Any:
    if isinstance(tensor, LeftBehind):
        return {"kind": "mark"}
    if isinstance(tensor, FunctionalTensor | FakeTensor) or torch._is_functional_tensor(tensor):
        return {"kind": OF_A_TRACE}
    gradient = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
    return {
        "kind": type(tensor).__name__,
        "values": tensor.detach().clone(),
        "requires_grad": tensor.requires_grad,
        "leaf": tensor.is_leaf,
        "gradient": None if gradient is None else _copied_tensor(gradient),
    }


def differs(mine: Any, theirs: Any, path: str = "") -> str | None:
    """The first place where what is seen differs, in words, or None; None in ``theirs`` at "random" matches anything."""
    if path == "random" and theirs is None:
        return None
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
            return f"{path}: {mine.dtype} {list(mine.shape)} instead of {theirs.dtype} {list(theirs.shape)}"
        same = mine.contiguous().view(torch.uint8) if mine.dim() else mine.reshape(1).view(torch.uint8)
        other = theirs.contiguous().view(torch.uint8) if theirs.dim() else theirs.reshape(1).view(torch.uint8)
        if torch.equal(same, other) or bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all()):
            return None
        return f"{path}: by {float((mine.double() - theirs.double()).abs().max()):.3g}"
    if type(mine) is not type(theirs):
        return f"{path}: {_short(mine)} instead of {_short(theirs)}"
    if isinstance(mine, dict):
        for key in [*theirs, *mine]:
            if key not in mine or key not in theirs:
                return f"{path}.{key}: only in {'the plan' if key in mine else 'plain PyTorch'}"
        found = (differs(mine[key], theirs[key], f"{path}.{key}".lstrip(".")) for key in theirs)
        return next((one for one in found if one is not None), None)
    if isinstance(mine, list | tuple):
        if len(mine) != len(theirs):
            return f"{path}: {len(mine)} entries instead of {len(theirs)}"
        pairs = enumerate(zip(mine, theirs, strict=True))
        found = (differs(one, other, f"{path}[{place}]") for place, (one, other) in pairs)
        return next((one for one in found if one is not None), None)
    return None if mine == theirs else f"{path}: {mine!r} instead of {theirs!r}"


def _short(thing: Any) -> str:
    return str(thing["kind"]) if isinstance(thing, dict) and "kind" in thing else type(thing).__name__


def _forget_modes() -> None:
    assert get_proxy_mode() is None, "a trace is still on"


def reduced(spec: Spec, verdict: Verdict) -> tuple[Spec, Verdict]:
    """A smaller program that ends in the same way."""
    for smaller in spec.smaller():
        found = play(smaller)
        if found.outcome == verdict.outcome:
            return reduced(smaller, found)
    return spec, verdict
