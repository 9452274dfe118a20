"""Random schedules of random networks, executed by every road, beside plain PyTorch: nothing may differ by one bit.

    python benchmarks/exactness.py
    python benchmarks/exactness.py --schedules 20000 --seed 5

Every schedule is valid and recomputes at random, gradients included. The roads are the interpreter, generated code,
and a training step through autograd; loss, gradients, buffers and the random state afterwards are compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from report import publish

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.runtime.exactness import Exactness
from tests.runtime.random_models import random_network

COLUMNS = ("road", "schedules", "recomputations", "of gradients", "loss", "gradients", "buffers", "random state")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=5000)
    parser.add_argument("--per-network", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000, help="of the first network (default: 1000)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = np.random.default_rng(options.seed)
    runs: Counter[str] = Counter()
    different: Counter[tuple[str, str]] = Counter()
    recomputations = gradients = networks = 0
    failures: list[dict[str, object]] = []
    begin = time.perf_counter()
    while sum(runs.values()) < 3 * options.schedules:
        seed = options.seed + networks
        networks += 1
        exactness = Exactness(*random_network(seed))
        backward = exactness.graph.is_backward
        for _ in range(min(options.per_network, options.schedules - sum(runs.values()) // 3)):
            place, dropped, flipped = int(draw.integers(2**31)), float(draw.random()), 0.3 * float(draw.random())
            schedule = exactness.schedule(place, dropped, flipped)
            again = (schedule.R > 0).sum(axis=0) - 1
            recomputations += int(again.sum())
            gradients += int(again[backward].sum())
            for road, found in exactness.compare(schedule).items():
                runs[road] += 1
                bad = {
                    "loss": found.loss_difference != 0,
                    "gradients": not found.gradients_equal,
                    "buffers": not found.buffers_equal,
                    "random state": not found.random_state_equal,
                }
                different.update((road, what) for what, wrong in bad.items() if wrong)
                if any(bad.values()):
                    failures.append({"network": seed, "schedule": place, "dropped": dropped, "flipped": flipped})
        if networks % 50 == 0:
            print(f"{sum(runs.values()) // 3} schedules of {networks} networks", file=sys.stderr, flush=True)
    rows = [
        [
            road,
            f"{count:,}",
            f"{recomputations:,}",
            f"{gradients:,}",
            *(f"{different[road, what]} differ" for what in ("loss", "gradients", "buffers", "random state")),
        ]
        for road, count in runs.items()
    ]
    details = {"networks": networks, "seed": options.seed, "seconds": time.perf_counter() - begin, "failures": failures}
    publish("exactness", COLUMNS, rows, details, threads=1)
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
