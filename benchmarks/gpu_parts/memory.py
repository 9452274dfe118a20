"""Predicted against measured: peak (requested, allocated, reserved) and overhead, for each model at four budgets.

The peaks of the allocator are those of one step from an empty cache, so that reserved bytes are the step's own. The
profiled graph and every schedule go into the file: other predictions can be held against them later.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

import remat_explorer as rx
from gpu_parts.models import Loaded, load, names
from gpu_parts.record import STOPPED
from gpu_parts.schedules import SHARES, Given, Schedules, Share, given, packed, packed_graph
from gpu_parts.work import Work
from remat_explorer.allocator import predict_allocator
from remat_explorer.capture import Program, TrainingStep, exact_kernels, place, torch_device, trace
from remat_explorer.errors import RematError
from remat_explorer.runtime import Measurement
from remat_explorer.runtime.generated_step import generate
from remat_explorer.solvers import Solution

REPEATS = 2
TIME_LIMIT = 8.0  # seconds for each schedule that is solved here
PATIENCE = 30.0  # seconds for a schedule that is not there yet
SHOWN = 3  # statements that are named where memory is not as predicted


@dataclass(frozen=True, eq=False)
class Prepared:
    """A profiled model whose schedules are being solved; it is not on the device meanwhile.

    Its program is kept unless it may hold memory of a device.
    """

    name: str
    graph: rx.Graph
    program: Program | None
    schedules: dict[Share, Future[Any] | Given]
    seconds: float


def run(work: Work) -> None:
    """All models, at every budget."""
    measure_models(names(work.tiny), SHARES, work)


def measure_models(models: Sequence[str], shares: Sequence[Share], work: Work) -> None:
    """Measure model after model; the schedules of the next one are solved meanwhile."""
    schedules = Schedules(work.bundle, 1.0 if work.tiny else TIME_LIMIT)
    waiting = work.waiting(models)
    upcoming: Prepared | None = None
    while (name := next(waiting, None)) or upcoming:
        prepared, upcoming = upcoming, None
        if name:
            with work.attempt(name):
                upcoming = prepare(name, shares, work, schedules)
        if prepared is not None and work.left > 0:
            with work.attempt(prepared.name):
                _measure(prepared, work)
    schedules.close()


def prepare(name: str, shares: Sequence[Share], work: Work, schedules: Schedules) -> Prepared:
    """Capture and profile a model, and begin to solve."""
    begun = time.monotonic()
    loaded = load(name, work.device, work.tiny)
    program = trace(loaded.module, loaded.args)
    options = {"device": work.device, "repeats": repeats(work), "program": program, "on_progress": quiet}
    graph = rx.profile(program.graph, loaded.module, loaded.args, **options)
    kept = program if work.device == "cpu" else None
    del loaded, program, options
    emptied(work.device)
    prepared = Prepared(name, graph, kept, schedules.of(name, graph, shares), time.monotonic() - begun)
    print(f"{name}: captured and profiled in {prepared.seconds:.0f} s", flush=True)
    return prepared


def _measure(prepared: Prepared, work: Work) -> None:
    """Every budget of a model; what is there is written after each."""
    name, graph = prepared.name, prepared.graph
    loaded = load(name, work.device, work.tiny)
    entry: dict[str, Any] = {
        "size": loaded.size,
        "operations": graph.n,
        "graph": packed_graph(graph),
        "checkpoint_all_peak": graph.summary().peak,
        "prepare_seconds": round(prepared.seconds, 1),
        "runs": [],
    }
    program = prepared.program or trace(loaded.module, loaded.args, options=graph.options)
    for share in prepared.schedules:
        if work.left <= 0 and entry["runs"]:
            entry[STOPPED] = "not every budget"
            break
        entry["runs"].append({"share": share, **_measured(loaded, prepared, share, program, work)})
        work.keep(name, entry, running=name)
        last = entry["runs"][-1]
        print(f"{name} {share}: {last.get('problem') or format(last['error'], '+.3%')}", flush=True)
    work.keep(name, entry)
    del loaded, program
    emptied(work.device)


def _measured(loaded: Loaded, prepared: Prepared, share: Share, program: Program, work: Work) -> dict[str, Any]:
    try:
        found = given(prepared.schedules[share], prepared.graph, min(PATIENCE, work.left))
    except RematError as error:
        return {"problem": str(error)}
    solution = found.solution
    entry: dict[str, Any] = {"source": found.source, "status": str(solution.status), "budget": solution.budget}
    if solution.schedule is None:
        return entry | {"problem": str(solution)}
    document = solution.to_document()
    entry |= {"gap": solution.gap, "solve_seconds": solution.seconds}
    entry["schedule"] = packed({"R": document["R"], "S": document["S"], "strategy": solution.strategy})
    try:
        options = {"device": work.device, "repeats": repeats(work), "program": program}
        measured = rx.measure(solution, loaded.module, loaded.args, **options)
        entry |= measured.to_document() | {"deviations": deviations(measured)}
        entry["predicted_step"] = predicted_peaks(solution, loaded)
        return entry | {"step": allocator_peaks(solution, loaded, program, work.device)}
    except RematError as error:
        return entry | {"problem": str(error)}


def deviations(measured: Measurement) -> list[dict[str, Any]]:
    """The statements at which memory differs most from what was predicted."""
    predicted, plan = measured.predicted.during, measured.plan
    assert isinstance(plan, rx.Plan)
    apart = measured.during - predicted
    worst = sorted(range(len(apart)), key=lambda i: -abs(int(apart[i])))[:SHOWN]
    return [
        {
            "statement": plan.text(plan.statements[i]),
            "predicted": int(predicted[i]),
            "measured": int(measured.during[i]),
        }
        for i in worst
        if apart[i]
    ]


def predicted_peaks(solution: Solution, loaded: Loaded) -> dict[str, int]:
    """What the simulated allocator says of a step, with a block for each parameter, buffer and input."""
    assert solution.plan is not None
    tensors = (*loaded.module.parameters(), *loaded.module.buffers(), *pytree.tree_leaves(loaded.args))
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors if isinstance(t, torch.Tensor)}
    found = predict_allocator(solution.plan, resident=[storage.nbytes() for storage in storages.values()])
    return {"allocated_bytes": found.peak_allocated, "reserved_bytes": found.peak_reserved}


def allocator_peaks(solution: Solution, loaded: Loaded, program: Program, device: str) -> dict[str, int] | None:
    """Peaks of the allocator in one step of generated code that begins with an empty cache; None on the CPU.

    Before it, the step runs once, since libraries take workspace on their first call. ``before`` are bytes that were
    there already: parameters, inputs, and that workspace.
    """
    if not device.startswith("cuda") or solution.plan is None:
        return None
    target = torch_device(device)
    step = generate(solution.plan, program, target)
    placed = place(loaded.module, loaded.args, None, device)
    tensors = TrainingStep(placed.model, placed.args, {}, None).tensors(placed.args, {})
    kinds = ("requested_bytes", "allocated_bytes", "reserved_bytes")
    with exact_kernels(), torch.random.fork_rng([target]):
        step.run(program.bind(placed.model, tensors))
        emptied(device)
        statistics = torch.cuda.memory_stats(target)
        before = {f"{kind}_before": statistics[f"{kind}.all.current"] for kind in kinds}
        torch.cuda.reset_peak_memory_stats(target)
        step.run(program.bind(placed.model, tensors))
        torch.cuda.synchronize(target)
        statistics = torch.cuda.memory_stats(target)
    return {kind: statistics[f"{kind}.all.peak"] for kind in kinds} | before


def emptied(device: str) -> None:
    """Give back what nothing holds any more."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def repeats(work: Work) -> int:
    """How often each operation and each step is timed."""
    return 1 if work.tiny else REPEATS


def quiet(done: int, total: int) -> None:
    """No bar."""
