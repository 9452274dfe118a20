"""Random schedules of random models of every kind, executed by every road, beside plain PyTorch: nothing may differ.

    python benchmarks/exactness.py
    python benchmarks/exactness.py --models 100 --schedules 3 --kinds "batch norm,recurrent" --threads 2
    python benchmarks/exactness.py --more     (after Ctrl-C, which keeps what is done)
    python benchmarks/exactness.py --programs 1000 --rounds 3 --without "changed input,two passes"

Every schedule is valid and recomputes at random, gradients included. The roads are the interpreter, generated code,
a training step through autograd, and for some models a step whose loss is outside; outputs, gradients, buffers and the
random state afterwards are compared bit for bit. A case is one model with one schedule. Its budget is the peak that is
predicted after a profile; it is kept to if no statement of the interpreter needs more. A model that cannot be captured
is refused, with all its cases. Every failure is kept with its kind, the seed of its model, and those of its schedule.
Results of more than one thread have a file of their own.

With --programs, random programs of training are run in place of models: with side effects, exchanged parameters, random
operators and phases, of which whatever a person can see is compared after each act. Each training step is run by a
random schedule of its own: schedules are those whose step was equal. A program counts for each of its features: equal,
refused, warned (a difference that a warning had announced, at which it ends), silent, raw (an error of PyTorch's or
Python's), wrong (plain PyTorch does not run it). The last three are kept with the seed, and a smaller program that
ends so.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import RESULTS, publish

sys.path.insert(0, str(Path(__file__).parents[1]))
import remat_explorer as rx
from remat_explorer.cache_folder import ENVIRONMENT
from remat_explorer.capture import exact_kernels
from remat_explorer.capture.memory_meter import memory_meter
from remat_explorer.errors import RematError
from remat_explorer.plan import Plan
from remat_explorer.runtime import Interpreter
from tests.runtime.exactness import CPU, Exactness
from tests.runtime.playing import play, reduced
from tests.runtime.random_kinds import RANDOM_KINDS, random_case
from tests.runtime.random_programs import PARTS, PHASES, random_spec
from tests.runtime.random_schedules import random_schedule

COLUMNS = ("kind", "models", "cases", "equal", "differ", "within budget", "refused", "failed")
OF_PROGRAMS = ("feature", "programs", "schedules", "equal", "warned", "refused", "silent", "raw", "wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--schedules", type=int, default=10, help="of each model (default: 10)")
    parser.add_argument("--seed", type=int, default=1000, help="of the first model (default: 1000)")
    parser.add_argument("--threads", type=int, default=1, help="of torch in each process (default: 1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="(default: one for each core)")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(RANDOM_KINDS))
    parser.add_argument("--more", action="store_true", help="keep the models of the last run with these options")
    parser.add_argument("--programs", type=int, help="run this many random programs in place of models")
    parser.add_argument("--without", type=lambda text: text.split(","), default=[], help="features of no program")
    parser.add_argument("--rounds", type=int, default=1, help="of the phases of each program (default: 1)")
    options = parser.parse_args()
    if unknown := set(options.without) - {*PARTS, *PHASES}:
        parser.error(f"unknown features {sorted(unknown)}; known: {', '.join([*PARTS, *PHASES])}")
    if options.programs is not None:
        raise SystemExit(run_programs(options))
    if unknown := set(options.kinds) - set(RANDOM_KINDS):
        parser.error(f"unknown kinds {sorted(unknown)}; known: {', '.join(RANDOM_KINDS)}")
    name = "exactness" if options.threads == 1 else f"exactness_{options.threads}_threads"
    drawn = {"schedules": options.schedules, "seed": options.seed, "kinds": options.kinds}
    details: dict[str, Any] = {"drawn": drawn, "seconds": 0.0, "counts": {}, "models": [], "failures": []}
    if options.more:
        details = json.loads((RESULTS / f"{name}.json").read_text())["details"]
        if details["drawn"] != drawn:
            parser.error(f"results/{name}.json is of {details['drawn']}; ask for the same")
    kept = set(details["models"])
    seeds = [seed for seed in range(options.seed, options.seed + options.models) if seed not in kept]
    with tempfile.TemporaryDirectory() as profiles, suppress(KeyboardInterrupt):
        study_all(seeds, options, profiles, details)
    counts = {kind: Counter(details["counts"].get(kind, {})) for kind in options.kinds}
    counts["all"] = sum(counts.values(), Counter())
    rows = [[kind, *(f"{counted[column]:,}" for column in COLUMNS[1:])] for kind, counted in counts.items()]
    details["failures"].sort(key=lambda failure: (failure["kind"], failure["model"]))
    details["models"].sort()
    for failure in details["failures"]:
        print(f"{failure['kind']}, model {failure['model']}: {failure['what']}: {failure['words']}", file=sys.stderr)
    publish(name, COLUMNS, rows, details, threads=options.threads, processes=options.processes)
    raise SystemExit(1 if any(counts["all"][what] for what in ("differ", "failed")) else 0)


def study_all(seeds: list[int], options: argparse.Namespace, profiles: str, details: dict[str, Any]) -> None:
    """Study the models of ``seeds`` in processes; ``details`` has at each moment what is done."""
    begin, before = time.perf_counter(), details["seconds"]
    ready = partial(prepare, options.threads, profiles)
    pool = ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn"), ready)
    tasks = [(options.kinds[(seed - options.seed) % len(options.kinds)], seed) for seed in seeds]
    waiting = {pool.submit(study, kind, seed, options.schedules): seed for kind, seed in tasks}
    try:
        for future in as_completed(waiting):
            kind, counted, failed = future.result()
            details["counts"][kind] = dict(Counter(details["counts"].get(kind, {})) + counted)
            details["failures"] += failed
            details["models"].append(waiting[future])
            details["seconds"] = before + time.perf_counter() - begin
            if len(details["models"]) % 50 == 0:
                print(f"{len(details['models'])} of {options.models} models", file=sys.stderr, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


def run_programs(options: argparse.Namespace) -> int:
    """Run random programs and publish them by feature; 1 if one was neither equal nor refused nor warned of."""
    drawn = {"seed": options.seed, "without": options.without, "rounds": options.rounds}
    details: dict[str, Any] = {"drawn": drawn, "counts": {}, "programs": [], "failures": []}
    if options.more:
        details = json.loads((RESULTS / "exactness_programs.json").read_text())["details"]
        if details["drawn"] != drawn:
            raise SystemExit(f"results/exactness_programs.json is of {details['drawn']}; ask for the same")
    counts = {feature: Counter(counted) for feature, counted in details["counts"].items()}
    done = set(details["programs"])
    seeds = [seed for seed in range(options.seed, options.seed + options.programs) if seed not in done]
    with tempfile.TemporaryDirectory() as profiles, suppress(KeyboardInterrupt):
        ready = partial(prepare, options.threads, profiles)
        pool = ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn"), ready)
        waiting = {pool.submit(study_program, seed, options.without, options.rounds): seed for seed in seeds}
        try:
            for future in as_completed(waiting):
                features, counted, failures = future.result()
                for feature in ("all", *features):
                    counts.setdefault(feature, Counter()).update(counted)
                details["failures"] += failures
                details["programs"].append(waiting[future])
        finally:
            pool.shutdown(cancel_futures=True)
    details["failures"].sort(key=lambda failure: failure["seed"])
    details["programs"].sort()
    for failure in details["failures"]:
        print(f"{failure['outcome']}, seed {failure['seed']}: {failure['words']}", file=sys.stderr)
    details["counts"] = {feature: dict(counts[feature]) for feature in sorted(counts, key=lambda f: (f == "all", f))}
    rows = [[feature, *(f"{counts[feature][column]:,}" for column in OF_PROGRAMS[1:])] for feature in details["counts"]]
    publish("exactness_programs", OF_PROGRAMS, rows, details, threads=options.threads, processes=options.processes)
    return int(any(failure["outcome"] != "wrong" for failure in details["failures"]))


def study_program(
    seed: int, without: list[str], rounds: int
) -> tuple[tuple[str, ...], Counter[str], list[dict[str, Any]]]:
    """One program: its features, what is counted for each, and what failed."""
    spec = random_spec(seed, without)
    spec = replace(spec, phases=spec.phases * rounds)
    verdict = play(spec)
    counted = Counter({"programs": 1, "schedules": verdict.steps, verdict.outcome: 1})
    if verdict.outcome in ("equal", "warned", "refused"):
        return spec.features, counted, []
    smaller, found = reduced(spec, verdict)
    words = {"words": verdict.words[:500], "reduced": str(smaller), "words of the reduced": found.words[:500]}
    return spec.features, counted, [{"seed": seed, "outcome": verdict.outcome, **words}]


def prepare(threads: int, profiles: str) -> None:
    """What each process begins with: threads, a folder for profiles that nobody needs later, no ear for Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
