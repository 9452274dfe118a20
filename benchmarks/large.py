"""Graphs of thousands of operations: seconds to a first schedule and to a gap, and the memory that the search takes.

    python benchmarks/large.py
    python benchmarks/large.py --cases llama3_8b chain_5000    (measures these again, and keeps the others)

Models are captured without weights, at their published sizes; those that the zoo lacks are transformers' own. Budgets
are the smallest one that `minimum_budget` knows, and a fifth of the way from there to keeping everything. Each
budget is solved in a process of its own, with two threads. Targets: a first schedule within 3 s for n <= 5,000 and
within 10 s for n <= 15,000; a gap of 2 % within 60 s at a fifth, and of 5 % at the smallest budget; an end within 1 s
of the limit, and of a cancel; less than 2 GB. What misses its target is marked with *.

At a fifth each is solved once more, and cancelled after two seconds, in the midst of its work.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from report import RESULTS, publish

import remat_explorer as rx
from remat_explorer import models
from remat_explorer.instances import linear
from remat_explorer.quantities import format_share
from remat_explorer.solvers import Progress, load_search

SHARES = {"a fifth": 0.2, "smallest": 0.0}  # of the way from the smallest known budget to keeping everything
FIRST = ((5_000, 3.0), (15_000, 10.0))  # operations, and seconds to a first schedule for up to so many
GAP = {"a fifth": 0.02, "smallest": 0.05}
OVERRUN, MEMORY = 1.0, 2.0  # seconds, gigabytes
CANCELLED = 2.0  # seconds after which a solve is cancelled
COLUMNS = (
    "graph", "n", "budget", "first schedule s", "2 % gap s", "5 % gap s", "gap",
    "beyond the limit s", "after a cancel s", "GB",
)  # fmt: skip


def of_zoo(name: str) -> Callable[[], rx.Graph]:
    return lambda: models.load(name, device="cuda", costs="H100", precision="bfloat16").graph


def of_transformers(
    names: tuple[str, str], configuration: dict[str, Any], **inputs: torch.Tensor
) -> Callable[[], rx.Graph]:
    """A model of transformers, by the names of its class and its configuration's, with the loss that it gives."""

    def capture() -> rx.Graph:
        import transformers

        make, settings = (getattr(transformers, name) for name in names)
        with torch.device("meta"):
            model = make(settings(**configuration)).to(torch.bfloat16)
            given = {name: torch.empty_like(tensor, device="meta") for name, tensor in inputs.items()}
        return rx.capture(model, (), given, loss=lambda output: output.loss, device="H100")

    return capture


IMAGES, LABELS = torch.zeros(64, 3, 224, 224, dtype=torch.bfloat16), torch.zeros(64, dtype=torch.int64)
TOKENS = torch.zeros(8, 1024, dtype=torch.int64)
CASES: dict[str, Callable[[], rx.Graph]] = {
    "llama3_8b": of_zoo("llama3_8b"),
    "llama3_70b": of_zoo("llama3_70b"),
    "dit_xl": of_zoo("dit_xl"),
    # Radford et al. 2019, table 2; Dosovitskiy et al. 2021, table 1; He et al. 2016, table 1
    "gpt2_xl": of_transformers(
        ("GPT2LMHeadModel", "GPT2Config"),
        {"n_embd": 1600, "n_layer": 48, "n_head": 25},
        input_ids=TOKENS,
        labels=TOKENS,
    ),
    "vit_large": of_transformers(
        ("ViTForImageClassification", "ViTConfig"),
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
        pixel_values=IMAGES,
        labels=LABELS,
    ),
    "resnet152": of_transformers(
        ("ResNetForImageClassification", "ResNetConfig"), {"depths": [3, 8, 36, 3]}, pixel_values=IMAGES, labels=LABELS
    ),
    "chain_5000": lambda: linear(5000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--time-limit", type=float, default=60.0)
    options = parser.parse_args()
    known = [] if set(options.cases) == set(CASES) else json.loads((RESULTS / "large.json").read_text())["details"]
    details = [entry for entry in known if entry["graph"] not in options.cases]
    load_search()
    with TemporaryDirectory() as folder:
        for name in options.cases:
            path = Path(folder) / f"{name}.json"
            seconds = apart(capture_to, name, path)
            least, most = apart(budgets_of, path)
            for kind, share in SHARES.items():
                budget = int(least + share * (most - least))
                found = apart(solve, path, budget, options.time_limit)
                if kind == "a fifth":
                    found["after_cancel"] = apart(cancel, path, budget)
                details.append({"graph": name, "budget": kind, "capture_seconds": seconds, **found})
                print(*row_of(details[-1], options.time_limit), flush=True)
    details.sort(key=lambda entry: (list(CASES).index(entry["graph"]), list(SHARES).index(entry["budget"])))
    rows = [row_of(entry, options.time_limit) for entry in details]
    publish("large", COLUMNS, rows, details, time_limit=options.time_limit)


def apart(work: Callable[..., Any], *given: Any) -> Any:
    """What ``work`` gives, in a process of its own, whose memory is then its own, too."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def capture_to(name: str, path: Path) -> float:
    begun = time.monotonic()
    CASES[name]().save(str(path))
    return time.monotonic() - begun


def budgets_of(path: Path) -> tuple[int, int]:
    """The smallest known budget, and what keeping everything takes."""
    smallest = rx.minimum_budget(rx.Graph.load(str(path)))
    return smallest.known_feasible, smallest.checkpoint_all_peak


def solve(path: Path, budget: int, limit: float) -> dict[str, Any]:
    """When which gap was reached, and what it took."""
    graph = rx.Graph.load(str(path))
    load_search()
    begun, course = time.monotonic(), []
    used = time.process_time()

    def note(progress: Progress) -> None:
        gap = (
            None if progress.cost is None or progress.lower_bound is None else 1 - progress.lower_bound / progress.cost
        )
        course.append((time.monotonic() - begun, gap))

    solution = rx.solve(graph, budget, time_limit=limit, on_progress=note)
    return {
        "operations": graph.n,
        "first": next((seconds for seconds, gap in course if gap is not None), math.inf),
        "within": {share: reached(course, share) for share in ("0.02", "0.05")},
        "gap": solution.gap,
        "seconds": time.monotonic() - begun,
        "processor_seconds": time.process_time() - used,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def cancel(path: Path, budget: int) -> float:
    """Seconds between a cancel and the end of the solve; 0 if that was earlier."""
    graph = rx.Graph.load(str(path))
    load_search()
    end = time.monotonic() + CANCELLED
    rx.solve(graph, budget, time_limit=60.0, cancelled=lambda: time.monotonic() > end)
    return max(0.0, time.monotonic() - end)


def reached(course: list[tuple[float, float | None]], share: str) -> float | None:
    """Seconds until the gap was within a share."""
    return next((seconds for seconds, gap in course if gap is not None and gap <= float(share)), None)


def row_of(entry: dict[str, Any], limit: float) -> list[str]:
    first = next(seconds for most, seconds in FIRST if entry["operations"] <= most)
    gap = math.inf if entry["gap"] is None else entry["gap"]
    beyond, late = max(0.0, entry["seconds"] - limit), entry.get("after_cancel")
    within = ["-" if seconds is None else f"{seconds:.1f}" for seconds in entry["within"].values()]
    return [
        entry["graph"],
        f"{entry['operations']:,}",
        entry["budget"],
        f"{entry['first']:.1f}{'*' if entry['first'] > first else ''}",
        *within,
        f"{'none' if math.isinf(gap) else format_share(gap)}{'*' if gap > GAP[entry['budget']] else ''}",
        f"{beyond:.1f}{'*' if beyond > OVERRUN else ''}",
        "" if late is None else f"{late:.1f}{'*' if late > OVERRUN else ''}",
        f"{entry['gigabytes']:.2f}{'*' if entry['gigabytes'] > MEMORY else ''}",
    ]


if __name__ == "__main__":
    main()
