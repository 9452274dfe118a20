"""Results of plans beside plain PyTorch, bit for bit, on this device: by setting of the kernels, and by kind of model.

A model of the zoo is measured with a solved schedule under each setting. Random models of each kind run random
schedules by every road (interpreter, generated code, a training step). What deterministic algorithms refuse, plain
PyTorch refuses, too.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import remat_explorer as rx
from gpu_parts.memory import emptied, quiet
from gpu_parts.models import Loaded
from gpu_parts.schedules import on_graph
from gpu_parts.supervising import FOLDER
from gpu_parts.work import Work
from remat_explorer.capture import torch_device, trace

MODELS = {"resnet18": (32, 224, None), "gpt2": (2, None, 256), "unet_monet": (2, 96, None)}
TINY_MODELS = {"residual_net": (2, 32, None)}
SHARE, SECONDS = "60%", 3.0
SEEDS, SCHEDULES = 2, 2  # models of each kind, and schedules of each


@contextlib.contextmanager
def precision(convolutions: bool, products: bool) -> Iterator[None]:
    """TF32 allowed, or not, in convolutions and in matrix products."""
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    cudnn.allow_tf32, matmul.allow_tf32 = convolutions, products
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32 = before


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """PyTorch's deterministic algorithms alone."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


Setting = Callable[[str], contextlib.AbstractContextManager[Any]]
SETTINGS: dict[str, Setting] = {
    "as PyTorch is": lambda device: contextlib.nullcontext(),
    "TF32 off": lambda device: precision(False, False),
    "TF32 on": lambda device: precision(True, True),
    "deterministic algorithms": lambda device: deterministic(),
    "autocast bfloat16": lambda device: torch.autocast(device, torch.bfloat16),
    "autocast float16": lambda device: torch.autocast(device, torch.float16),
}


def run(work: Work) -> None:
    """The settings, then the random models."""
    sys.path.insert(0, str(FOLDER.parent))  # for what the tests have, too
    from tests.runtime.random_kinds import RANDOM_KINDS

    models = TINY_MODELS if work.tiny else MODELS
    settings = [f"{model}: {setting}" for setting in SETTINGS for model in models]
    kinds = list(RANDOM_KINDS)[:3] if work.tiny else list(RANDOM_KINDS)
    seeds = 1 if work.tiny else SEEDS
    drawn = [f"random {kind}: {seed}" for seed in range(seeds) for kind in kinds]
    solved: dict[str, dict[str, Any]] = {}  # by structure: most settings have the same

    def measure(name: str) -> dict[str, Any]:
        what, _, which = name.partition(": ")
        if name in drawn:
            return randomly(what.removeprefix("random "), int(which), work.device)
        with SETTINGS[which](work.device.partition(":")[0]):
            found = under_setting(what, (*models[what],), work.device, solved)
        emptied(work.device)
        return found

    work.each([*settings, *drawn], measure)


def under_setting(model: str, size: tuple[Any, ...], device: str, solved: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One model measured under the setting that is in force, with a schedule that recomputes."""
    loaded = rx.models.load(model, *size, device=device)
    case = Loaded(model, "", loaded.module, loaded.make_args)
    program = trace(case.module, case.args)
    options = {"device": device, "repeats": 1, "program": program, "on_progress": quiet}
    graph = rx.profile(program.graph, case.module, case.args, **options)
    if graph.structure not in solved:
        at_share = rx.solve(graph, SHARE, time_limit=SECONDS)
        best = at_share if at_share.schedule is not None else rx.solve(graph, "smallest", time_limit=SECONDS)
        solved[graph.structure] = best.to_document()
    found = on_graph(solved[graph.structure], graph)
    measured = rx.measure(found, case.module, case.args, **options)
    assert found.schedule is not None
    return measured.to_document() | {"recomputations": found.schedule.recomputations}


def randomly(kind: str, seed: int, device: str) -> dict[str, Any]:
    """Random schedules of a random model by every road; what differs is named."""
    from tests.runtime.exactness import Exactness
    from tests.runtime.random_kinds import random_case

    target = torch_device(device)
    with torch.device(target):
        case = random_case(kind, 5000 + seed)
    exactness = Exactness(case.model, case.args, case.kwargs, case.loss, case.outside, target)
    draw, different, roads = np.random.default_rng(seed), [], 0
    for _ in range(SCHEDULES):
        schedule = exactness.schedule(int(draw.integers(2**31)), draw.random(), 0.3 * draw.random())
        for road, found in exactness.compare(schedule).items():
            roads += 1
            if not found.equal:
                different.append(f"{road}: {found}".replace("\n", "; ")[:300])
    return {"roads": roads, "different": different}
