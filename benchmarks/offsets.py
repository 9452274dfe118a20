"""Offsets in one block: the instances of MiniMalloc, and schedules of the tests' graphs.

    python benchmarks/offsets.py --folder minimalloc/benchmarks/challenging
    python benchmarks/offsets.py --graphs unet vgg16

The folder holds the eleven instances A to K with 1048576 bytes of room, as https://github.com/google/minimalloc has
them (Moffitt, MiniMalloc, ASPLOS 2023); none is in this repository. Sizes are to the byte there. First the search ends
with an arena within the room. Target: all are solved. Where fewer bytes than that live at a time, a second search is
for the least arena. Target: at most 1 % above the most bytes at a time.

Schedules are those of checkpoint-all, and of the strategy "optimal" at several budgets, as a share of what keeping
everything takes; where none is known for a budget, that is said. Offsets are multiples of 512 bytes. Target: the arena
is at most 1 % above the most bytes at a time, and by the bound at most 1 % above the least. What misses a target is
marked "!". Time limits are on the clock, seconds those of this process; the search is compiled before.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

from report import publish

import remat_explorer as rx
from remat_explorer.offsets import ALIGNMENT, Arena, Rectangles, place_rectangles
from remat_explorer.plan import Plan
from remat_explorer.quantities import format_share
from remat_explorer.solvers import checkpoint_all
from remat_explorer.solvers.search.compilation import warm_up

DATA = Path(__file__).parents[1] / "tests" / "data"
INSTANCES, ROOM = "ABCDEFGHIJK", 1048576
CLOSE = 0.01  # share above the most bytes at a time, and above the bound
COLUMNS = ("instance", "schedule", "rectangles", "most at a time", "bound", "arena", "above most", "gap", "seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="with A.1048576.csv to K.1048576.csv; without it they are left out")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each instance (default: 60)")
    parser.add_argument("--plan-time-limit", type=float, default=10.0, help="seconds for each schedule (default: 10)")
    parser.add_argument("--solve-time-limit", type=float, default=5.0, help="seconds to find a schedule (default: 5)")
    parser.add_argument("--budgets", nargs="+", default=["80%", "60%", "smallest"])
    parser.add_argument("--graphs", nargs="+", help="names of graphs (default: all)")
    options = parser.parse_args()
    warm_up()
    rows, details = [], []
    for name in INSTANCES if options.folder else "":
        rectangles = read(options.folder / f"{name}.{ROOM}.csv")
        arena, seconds = timed(rectangles, 1, options.time_limit, ROOM)
        add(rows, details, name, f"room of {ROOM}", arena, seconds, arena.size > ROOM)
        if rectangles.peak < ROOM:
            arena, seconds = timed(rectangles, 1, options.time_limit, 0)
            add(rows, details, name, "least arena", arena, seconds, arena.excess > CLOSE)
    for path in sorted([*DATA.glob("graphs/keras_*.json"), *DATA.glob("captured/*.json")]):
        if options.graphs is None or path.stem in options.graphs:
            graph = rx.Graph.load(str(path))
            for what, plan in plans(graph, options.budgets, options.solve_time_limit):
                if plan is None:
                    rows.append([path.stem, what, *[""] * (len(COLUMNS) - 3), "no schedule"])
                    details.append({"instance": path.stem, "schedule": what, "rectangles": None})
                    continue
                arena, seconds = timed(Rectangles.of(plan), ALIGNMENT, options.plan_time_limit, 0)
                add(rows, details, path.stem, what, arena, seconds, arena.excess > CLOSE or arena.gap > CLOSE)
    missed = [f"{detail['instance']} ({detail['schedule']})" for detail in details if detail.get("missed")]
    print(f"targets missed: {', '.join(missed) or 'none'}")
    where = {"time_limit": options.time_limit, "plan_time_limit": options.plan_time_limit, "alignment": ALIGNMENT}
    publish("offsets", COLUMNS, rows, details, **where)


def read(path: Path) -> Rectangles:
    """An instance of MiniMalloc: lifetimes from lower up to upper, half-open, with sizes."""
    with path.open(newline="") as file:
        return Rectangles.from_rows(
            [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]
        )


def plans(graph: rx.Graph, budgets: list[str], time_limit: float) -> list[tuple[str, Plan | None]]:
    """What each plan is of, and the plan, where there is one."""
    found: list[tuple[str, Plan | None]] = [("checkpoint-all", Plan.of(checkpoint_all(graph)))]
    found += [(f"optimal, {budget}", rx.solve(graph, budget, time_limit=time_limit).plan) for budget in budgets]
    return found


def timed(rectangles: Rectangles, alignment: int, time_limit: float, enough: int) -> tuple[Arena, float]:
    """An arena, and the processor's seconds that it took to be found."""
    begun = time.process_time()
    arena = place_rectangles(rectangles, alignment, time_limit, enough=enough)
    return arena, time.process_time() - begun


def add(
    rows: list[list[str]], details: list[Any], instance: str, schedule: str, arena: Arena, seconds: float, missed: bool
) -> None:
    """A row of the table, and its details."""
    numbers = [str(number) for number in (len(arena.rectangles), arena.peak, arena.bound, arena.size)]
    shares = [format_share(arena.excess) + ("!" if missed else ""), format_share(arena.gap)]
    rows.append([instance, schedule, *numbers, *shares, f"{seconds:.2f}"])
    details.append(
        {"instance": instance, "schedule": schedule, "rectangles": len(arena.rectangles), "peak": arena.peak}
        | arena.to_document()
        | {"excess": arena.excess, "missed": missed, "seconds": seconds}
    )
    print(*rows[-1], sep="  ", flush=True)


if __name__ == "__main__":
    main()
