"""Plans that send values, held against what is promised of them: what many runs and searches gave, in numbers.

    python benchmarks/offload_checks.py executed --count 2000    # random plans of random networks, beside plain PyTorch
    python benchmarks/offload_checks.py disk                     # memory of a process, seen from outside
    python benchmarks/offload_checks.py monotone --count 1000    # searches with more and with less of everything
    python benchmarks/offload_checks.py known --count 200        # optima that an exhaustive search has found

`executed`: half of the plans send values late. Each runs over memory that holds NaN before it is filled and after it is
freed, and once more as a training step whose copies are late by random times; both must leave what plain PyTorch does,
bit for bit. Over streams that record who waits for whom, as CUDA's do, no two uses of memory may be without an order.
One plan in 20 runs again without each of its waits, one at a time: each must be caught, unless another wait does the
same. `--first` goes on where an earlier call has ended.

`disk`: a chain of eight layers whose activations are 2 GiB trains one step, with everything kept, and with every
activation sent to files as soon as it is there. The resident set size is sampled by another process.

`monotone`: small random graphs; more budget, bandwidth or host memory and less latency must never give a slower plan,
whether a search has to find it alone, or may take the plan that is known for less.
`known`: 200 small instances beside those of tests/offload, with budgets where something must be done.
Targets: nothing unequal, no race, no wait missed; the process's memory falls by at least 0.9 of what the plan predicts;
no slower plan for more; each optimum found, no bound above it.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from report import RESULTS, publish
from torch import nn

import remat_explorer as rx
from remat_explorer.graph import Graph
from remat_explorer.offload import TransferPlan, Transfers, TransferSolution, best_known, check_transfers
from remat_explorer.runtime.copies import Tier
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import largest_operation

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.offload.small_graphs import drawn_graph, drawn_instances
from tests.offload.test_copy_streams import run as run_over_streams
from tests.offload.transfer_runs import Late, LyingInWait, Opening, outcome, random_plan, readings, trained, watch
from tests.runtime.exactness import Exactness
from tests.runtime.random_models import random_network

COLUMNS = ("what", "of", "found")
MODELS, REMOVED, METERED = 40, 20, 5  # random networks; one plan in so many runs without each wait, or is metered
SECONDS = 2.0  # of a search of a small graph
ROWS, WIDTH, LAYERS = 1 << 20, 64, 8  # of the chain: 256 MiB an activation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subject", choices=("executed", "disk", "monotone", "known", "step"))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=None)
    parser.add_argument("--minutes", type=float, default=4.5)
    parser.add_argument("--way", choices=("keep", "send"), default="keep", help="of the step that `disk` starts")
    options = parser.parse_args()
    if options.subject == "step":
        train_once(options.way)
        return
    ends = time.monotonic() + 60 * options.minutes
    if options.subject == "executed":
        found = executed(options.first, options.count or 2000, ends)
    elif options.subject == "monotone":
        found = monotone(options.first, options.count or 1000, ends)
    elif options.subject == "known":
        found = known_optima(options.first, options.count or 200, ends)
    else:
        found = on_disk()
    kept = RESULTS / "offload_checks.json"
    details = json.loads(kept.read_text())["details"] if kept.exists() else {}
    if options.subject != "disk" and options.first and options.first == details.get(options.subject, {}).get("number"):
        found = dict(Counter(details[options.subject]) + Counter(found)) | {"number": found["number"]}
    details[options.subject] = found
    rows = [[subject, what, f"{count:,}"] for subject, part in sorted(details.items()) for what, count in part.items()]
    publish("offload_checks", COLUMNS, rows, details)


@lru_cache(4)
def bench(seed: int) -> Exactness:
    return Exactness(*random_network(seed))


def executed(first: int, count: int, ends: float) -> dict[str, Any]:
    """Counts of what became of plans; "number" is the first that was not tried."""
    torch.set_num_threads(1)
    found: Counter[str] = Counter()
    number = first
    while number < first + count and time.monotonic() < ends:
        case, late = bench(number * MODELS // 2000 % MODELS), number % 2 == 1
        plan = random_plan(case.graph, number, late=late)
        found["plans"] += 1
        found["statements"] += len(plan.statements)
        found["bytes sent"] += plan.sent_bytes
        found["equal over memory filled with NaN"] += outcome(case, plan, Opening(make=LyingInWait)).equal
        delayed = Opening(make=lambda plan, tier, seed=number: Late(plan, tier, seed))
        found["equal as a step with late copies"] += trained(case, plan, delayed).equal
        copies, left = run_over_streams(case, plan)
        found["ordered over streams"] += left is not None and (copies.host_bytes == plan.timeline.host).all()
        if number % METERED == 0:
            _, after, host = readings(case, plan, Tier())
            found["metered"] += 1
            found["bytes exact"] += (after == plan.timeline.after).all() and (host == plan.timeline.host).all()
        if number % REMOVED == 0:
            for removed, _ in enumerate(copies.waits.made):
                without, left = run_over_streams(case, plan, removed)
                found[f"stream waits {fate(left is None, without.waits.covered)}"] += 1
            if without_indices(case):
                lying, clean = watch(case, plan)
                for removed, _ in enumerate(lying.waits):
                    changed, seen = watch(case, plan, removed)
                    found[f"thread waits {fate(seen != clean, changed.covered)}"] += 1
        number += 1
    return {what: int(count) for what, count in found.items()} | {"number": number}


def fate(caught: bool, covered: bool) -> str:
    """What becomes of a wait that is left out."""
    return "caught" if caught else "covered by others" if covered else "missed"


def without_indices(case: Exactness) -> bool:
    """Whether NaN in place of a value leads nothing astray."""
    made = [case.program.fakes.get(node) for node in case.program.carriers]
    return all(not isinstance(one, torch.Tensor) or one.dtype.is_floating_point for one in made)


def chain() -> tuple[nn.Module, torch.Tensor]:
    """Eight layers of 256 MiB each."""
    torch.manual_seed(0)
    parts = (part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))
    return nn.Sequential(*parts), torch.randn(ROWS, WIDTH)


def sending_plan(graph: Graph) -> TransferPlan:
    """Everything is computed once; what is large and read by the backward pass only later is sent at once."""
    last = {v: max(graph.readers[v]) for v in range(len(graph.values)) if graph.readers[v]}
    forward = [k for k, node in enumerate(graph.operations) if node.phase == "forward"]
    large = max(value.bytes for value in graph.values)
    away = {
        v
        for v in last
        if graph.values[v].bytes == large and graph.producer[v] in forward and last[v] > max(forward) + 1
    }
    events: list[Any] = []
    fetched: set[int] = set()
    for k in range(graph.n):
        late = [v for v in graph.inputs(k) if v in away - fetched and k > max(forward)]
        events += [("fetch", k, v) for v in late]
        fetched.update(late)
        events.append(("compute", k, k))
        events += [("send", k, v) for v in graph.outputs(k) if v in away]
    plan = TransferPlan.from_events(graph, Transfers(math.inf, math.inf), events)
    return check_transfers(plan).plan


def train_once(way: str) -> None:
    """A step in this process, when a line comes; what was predicted is printed before, the gradient's sum after."""
    torch.set_num_threads(1)
    model, x = chain()
    run: Any = lambda x: model(x).sum()  # noqa: E731
    predicted = {}
    if way == "send":
        plan = sending_plan(rx.capture(model, (x,), loss=torch.sum))
        made = TransferSolution(plan.graph, plan.transfers, "offload", Status.FEASIBLE, 1 << 40, plan, None, 0.0)
        run = rx.rematerialize(model, (x,), solution=made, loss=torch.sum, tier="disk")
        predicted = {"peak": plan.peak, "sent": plan.sent_bytes}
    print(json.dumps(predicted), flush=True)
    sys.stdin.readline()
    run(x).backward()
    print(json.dumps([float(parameter.grad.double().sum()) for parameter in model.parameters()]), flush=True)  # type: ignore
    sys.stdin.readline()


def on_disk() -> dict[str, Any]:
    """Bytes that the process grows by in a step, with everything kept and with what is sent."""
    kept, sent = seen_from_outside("keep"), seen_from_outside("send")
    assert kept["gradients"] == sent["gradients"]
    model, x = chain()
    graph = rx.capture(model, (x,), loss=torch.sum)
    everything = TransferPlan.from_events(graph, Transfers(0, 0), [("compute", k, k) for k in range(graph.n)])
    return {
        "bytes of activations": LAYERS * ROWS * WIDTH * 4,
        "bytes sent": sent["sent"],
        "predicted fall of the peak": everything.peak - sent["peak"],
        "growth of the resident set with everything kept": kept["growth"],
        "growth with what is sent": sent["growth"],
        "measured fall of the peak": kept["growth"] - sent["growth"],
    }


def seen_from_outside(way: str) -> dict[str, Any]:
    """The growth of a child's resident set in its step, in bytes, from samples about every 2 ms."""
    command = [sys.executable, __file__, "step", "--way", way]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        predicted = json.loads(child.stdout.readline())
        process, done = psutil.Process(child.pid), threading.Event()
        before = most = process.memory_info().rss
        answer: list[str] = []

        def wait() -> None:
            answer.append(child.stdout.readline())  # type: ignore[union-attr]
            done.set()

        threading.Thread(target=wait).start()
        child.stdin.write("\n")
        child.stdin.flush()
        while not done.wait(0.002):
            most = max(most, process.memory_info().rss)
        child.stdin.write("\n")
    return predicted | {"growth": most - before, "gradients": json.loads(answer[0])}


def monotone(first: int, count: int, ends: float) -> dict[str, Any]:
    """Counts of comparisons between the plans of two searches, of which one has more."""
    found: Counter[str] = Counter()
    number = first
    while number < first + count and time.monotonic() < ends:
        draw = np.random.default_rng(number)
        graph = drawn_graph(number, int(draw.integers(5, 9)))
        budget = largest_operation(graph)[1] + int(draw.integers(0, 3))
        rate, latency = float(draw.choice([0.25, 0.5, 1.0])), float(draw.choice([0.5, 1.0]))
        room, duplex = int(draw.integers(2, 6)), bool(draw.random() < 0.7)

        @cache
        def answer(budget: int, rate: float, latency: float, room: int | None) -> TransferSolution:
            transfers = Transfers(rate, rate, latency, room, duplex)  # noqa: B023
            return rx.solve(graph, budget, "offload", SECONDS, transfers=transfers)  # noqa: B023

        least = answer(budget, rate, latency, room)
        more = {
            "budget": (budget + 1, rate, latency, room),
            "bandwidth": (budget, 2 * rate, latency, room),
            "latency": (budget, rate, 0.0, room),
            "host memory": (budget, rate, latency, None),
        }
        found["graphs"] += 1
        for what, given in more.items():
            alone = answer(*given)
            best = best_known([alone, least], alone.budget, alone.transfers, "offload") or alone
            change = f"less {what}" if what == "latency" else f"more {what}"
            found[f"compared: {what}"] += 1
            found[f"faster with {change}"] += cost_of(alone) < cost_of(least) * (1 - 1e-9)
            found["both proven"] += all(one.status in (Status.OPTIMAL, Status.INFEASIBLE) for one in (alone, least))
            found[f"alone slower with {change}"] += cost_of(alone) > cost_of(least) * (1 + 1e-9)
            found[f"slower than what is known with {change}"] += cost_of(best) > cost_of(least) * (1 + 1e-9)
            if cost_of(alone) > cost_of(least) * (1 + 1e-9):
                print(number, what, least, alone, flush=True)
        number += 1
    return {what: int(count) for what, count in found.items()} | {"number": number}


def cost_of(solution: TransferSolution) -> float:
    return math.inf if solution.cost is None else solution.cost


def known_optima(first: int, count: int, ends: float) -> dict[str, Any]:
    """Counts of instances by what the search says of them."""
    found: Counter[str] = Counter()
    number, instances = first, drawn_instances()
    while number < min(first + count, len(instances)) and time.monotonic() < ends:
        one = instances[number]
        solution = rx.solve(one.graph, one.budget, "offload", 3.0, transfers=one.transfers)
        found["instances"] += 1
        found["optimum found"] += solution.cost == one.makespan
        found["proven"] += solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
        found["infeasible"] += one.makespan is None
        found["bound above the optimum"] += (
            one.makespan is not None and (solution.lower_bound or 0) > one.makespan + 1e-6
        )
        if solution.cost != one.makespan:
            print(number, one, solution, one.makespan, flush=True)
        number += 1
    return {what: int(count) for what, count in found.items()} | {"number": number}


if __name__ == "__main__":
    main()
