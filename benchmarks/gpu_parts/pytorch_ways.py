"""PyTorch's own ways to train in less memory, and our schedule at the peak that was measured for each.

What each way is, and how it is metered, is in `remat_explorer.runtime.peers`.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import remat_explorer as rx
from gpu_parts.memory import PATIENCE, REPEATS, TIME_LIMIT, emptied, quiet
from gpu_parts.models import Loaded
from gpu_parts.schedules import Given, Schedules, given
from gpu_parts.work import Work
from remat_explorer.errors import RematError

MODELS = {  # batch, pixels, tokens
    "gpt2": (4, None, 1024),
    "resnet50": (64, 224, None),
    "vgg16": (48, 224, None),
    "mobilenet_v1": (96, 224, None),
    "bert": (8, None, 512),
}
TINY_MODELS = {"residual_net": (8, 32, None)}
BUDGETS = (1.0, 0.5, 0.25, 0.1)  # of PyTorch's `activation_memory_budget`


def run(work: Work) -> None:
    """Model after model."""
    models = TINY_MODELS if work.tiny else MODELS
    schedules = Schedules(None, 1.0 if work.tiny else TIME_LIMIT)
    work.each(list(models), lambda name: _compared(name, (*models[name],), work, schedules))
    schedules.close()


def _compared(name: str, size: tuple[Any, ...], work: Work, schedules: Schedules) -> dict[str, Any]:
    zoo = rx.models.load(name, *size, device=work.device)
    loaded = Loaded(name, str(rx.models.Size(zoo.batch, zoo.image, zoo.sequence)), zoo.module, zoo.make_args)
    budgets = BUDGETS[1:2] if work.tiny else BUDGETS
    peers = rx.compare_peers(loaded.module, loaded.args, device=work.device, repeats=REPEATS, budgets=budgets)
    entry: dict[str, Any] = {"size": loaded.size, "peers": [peer.to_document() for peer in peers], "ours": {}}
    work.keep(name, entry, running=name)
    graph = rx.profile(
        loaded.graph(),
        loaded.module,
        loaded.args,
        device=work.device,
        repeats=REPEATS,
        on_progress=quiet,
    )
    peaks = sorted({peer.peak for peer in peers if peer.peak is not None}, reverse=True)
    waiting = {peak: schedules.of(name, graph, (peak,))[peak] for peak in peaks}
    for peak, future in waiting.items():
        if work.left <= 0:
            break
        entry["ours"][str(peak)] = _measured(future, graph, loaded, work)
        work.keep(name, entry, running=name)
    emptied(work.device)
    return entry


def _measured(waiting: Future[Any] | Given, graph: rx.Graph, loaded: Loaded, work: Work) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    try:
        solution = given(waiting, graph, min(PATIENCE, work.left)).solution
        entry = {"status": str(solution.status), "gap": solution.gap}
        if solution.schedule is None:
            return entry
        found = rx.measure(solution, loaded.module, loaded.args, device=work.device, repeats=REPEATS)
    except RematError as error:
        return entry | {"problem": str(error)}
    return entry | found.to_document()
