"""Random schedules of random models of every kind, executed by every road, beside plain PyTorch: nothing may differ.

    python benchmarks/exactness.py
    python benchmarks/exactness.py --models 100 --schedules 3 --kinds "batch norm,recurrent" --threads 2

Every schedule is valid and recomputes at random, gradients included. The roads are the interpreter, generated code,
a training step through autograd, and for some models a step whose loss is outside; outputs, gradients, buffers and the
random state afterwards are compared bit for bit. A case is one model with one schedule. Its budget is the peak that is
predicted after a profile; it is kept to if no statement of the interpreter needs more. A model that cannot be captured
is refused, with all its cases. Every failure is kept with its kind, the seed of its model, and those of its schedule.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import publish

sys.path.insert(0, str(Path(__file__).parents[1]))
import remat_explorer as rx
from remat_explorer.cache_folder import ENVIRONMENT
from remat_explorer.capture.profiling.memory_meter import memory_meter
from remat_explorer.capture.step.placement import exact_kernels
from remat_explorer.errors import RematError
from remat_explorer.plan import Plan
from remat_explorer.runtime.interpreter import Interpreter
from tests.runtime.exactness import CPU, Exactness
from tests.runtime.random_kinds import RANDOM_KINDS, random_case
from tests.runtime.random_schedules import random_schedule

COLUMNS = ("kind", "models", "cases", "equal", "differ", "within budget", "refused", "failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--schedules", type=int, default=10, help="of each model (default: 10)")
    parser.add_argument("--seed", type=int, default=1000, help="of the first model (default: 1000)")
    parser.add_argument("--threads", type=int, default=1, help="of torch in each process (default: 1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="(default: one for each core)")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(RANDOM_KINDS))
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(RANDOM_KINDS):
        parser.error(f"unknown kinds {sorted(unknown)}; known: {', '.join(RANDOM_KINDS)}")
    tasks = [(options.kinds[i % len(options.kinds)], options.seed + i) for i in range(options.models)]
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in options.kinds}
    failures: list[dict[str, Any]] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as profiles:
        ready = partial(prepare, options.threads, profiles)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.processes, spawn, ready) as pool:
            waiting = [pool.submit(study, kind, seed, options.schedules) for kind, seed in tasks]
            for done, future in enumerate(as_completed(waiting), start=1):
                kind, counted, failed = future.result()
                counts[kind].update(counted)
                failures += failed
                if done % 50 == 0:
                    print(f"{done} of {len(tasks)} models", file=sys.stderr, flush=True)
    counts["all"] = sum(counts.values(), Counter())
    rows = [[kind, *(f"{counted[column]:,}" for column in COLUMNS[1:])] for kind, counted in counts.items()]
    failures.sort(key=lambda failure: (failure["kind"], failure["model"]))
    details = {
        "schedules": options.schedules,
        "seed": options.seed,
        "seconds": time.perf_counter() - begin,
        "recomputations": counts["all"]["recomputations"],
        "of gradients": counts["all"]["of gradients"],
        "failures": failures,
    }
    for failure in failures:
        print(f"{failure['kind']}, model {failure['model']}: {failure['what']}: {failure['words']}", file=sys.stderr)
    publish("exactness", COLUMNS, rows, details, threads=options.threads, processes=options.processes)
    raise SystemExit(1 if any(counts["all"][what] for what in ("differ", "failed")) else 0)


def prepare(threads: int, profiles: str) -> None:
    """What each process begins with: its threads, and a folder for profiles that nobody needs later."""
    torch.set_num_threads(threads)
    os.environ[ENVIRONMENT] = profiles
    warnings.simplefilter("ignore")


def study(kind: str, seed: int, schedules: int) -> tuple[str, Counter[str], list[dict[str, Any]]]:
    """All cases of one model: what is counted, and what failed."""
    counted: Counter[str] = Counter(models=1, cases=schedules)
    failures: list[dict[str, Any]] = []

    def failed(what: str, words: str, cases: int = 1, **more: Any) -> None:
        counted[what] += cases
        failures.append({"kind": kind, "model": seed, "what": what, "words": words[:500], **more})

    try:
        case = random_case(kind, seed)
        exactness = Exactness(case.model, case.args, case.kwargs, case.loss, case.outside)
        graph = rx.profile(exactness.graph, case.model, case.args, case.kwargs, case.loss, device="cpu", repeats=1)
    except RematError as error:
        failed("refused", str(error), schedules)
        return kind, counted, failures
    except Exception as error:  # whatever it is, the other models go on
        failed("failed", f"{type(error).__name__}: {error}", schedules)
        return kind, counted, failures
    draw = np.random.default_rng(seed)
    for _ in range(schedules):
        drawn = {"schedule": int(draw.integers(2**31)), "dropped": draw.random(), "flipped": 0.3 * draw.random()}
        schedule = random_schedule(graph, drawn["schedule"], drawn["dropped"], drawn["flipped"])
        again = (schedule.R > 0).sum(axis=0) - 1
        counted["recomputations"] += int(again.sum())
        counted["of gradients"] += int(again[graph.is_backward].sum())
        try:
            different = {road: found for road, found in exactness.compare(schedule).items() if not found.equal}
            excess = excess_of(Plan.of(schedule), exactness)
        except Exception as error:
            failed("failed", f"{type(error).__name__}: {error}", **drawn)
            continue
        counted["within budget"] += excess <= 0
        if excess > 0:
            failures.append({"kind": kind, "model": seed, "what": "above budget", "words": f"{excess} bytes", **drawn})
        if different:
            road, found = next(iter(different.items()))
            failed("differ", f"{road}: {found}".replace("\n", "; "), roads=list(different), **drawn)
        else:
            counted["equal"] += 1
    return kind, counted, failures


def excess_of(plan: Plan, exactness: Exactness) -> int:
    """Bytes that a run needs above the plan's predicted peak."""
    interpreter = Interpreter(plan, exactness.program, CPU)
    with torch.random.fork_rng(), exact_kernels():
        registers = exactness.program.bind(exactness.model, exactness.tensors)
        with memory_meter(CPU) as meter:
            interpreter.run(registers, meter.section)
    return plan.graph.resident_bytes + max(reading.highest for reading in meter.readings) - plan.peak


if __name__ == "__main__":
    main()
