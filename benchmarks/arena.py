"""The arena: every method that people use, on one meter, each beside what is proven at the peak of its own schedule.

    python benchmarks/arena.py
    python benchmarks/arena.py --quick
    python benchmarks/arena.py --graphs unet gpt2 --methods dtr checkpoint-every-n --page arena.html

Budgets are six, from the smallest with a known schedule to keeping everything, closer together where memory is scarce.
Every schedule passes the checker. A method that does not ask for the budget gives the cheapest of its schedules within
it, or, where none fits, the one with the smallest peak, which then exceeds the budget. Then the schedules of the
methods run on a small network with dropout and batch normalization, beside PyTorch's own ways, and PyTorch's memory
budget beside ours on the model of its issue 197838.

Targets: at most 30 minutes on two cores, two with --quick. The exit code is 1 where a method costs less than ours at
the same peak and ours is called optimal, where anything costs less than the bound, and where ours, executed, exceeds
its budget or changes a gradient. A graph is written when it is done, and not judged again by the next run with as
many seconds, methods and budgets; --again does. `arena_text.py` puts the results into docs/arena.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from arena_executed import executed, reported, wrong
from arena_graphs import GRAPHS, QUICK
from report import RESULTS, machine, publish, write

import remat_explorer as rx
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.search.compilation import warm_up
from reproduction.arena_page import worst, write_arena
from reproduction.judge import Verdict, contender, contenders, judge

PLACES = (0.02, 0.1, 0.2, 0.35, 0.55, 0.8)  # of what lies between the smallest budget and keeping everything
QUICK_PLACES = (0.1, 0.35, 0.7)
REPORTED = {False: (32, 2048, 10.0), True: (2, 512, 0.5)}  # layers, tokens, seconds of our search at a budget
RUN_QUICKLY = ("dtr", "checkpoint-full", "save-second-matmul", "pytorch-budget (dp)")
COLUMNS = ("graph", "method", "kept", "worst above ours", "worst above the bound", "median above ours")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=[*GRAPHS, *QUICK], help="some of them (default: all)")
    parser.add_argument("--methods", nargs="+", choices=[one.name for one in contenders()], help="default: all")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a method for each budget (default: 2)")
    parser.add_argument("--proof-seconds", type=float, default=1.0, help="of our search at each peak (default: 1)")
    parser.add_argument("--processes", type=int, default=2, help="graphs at a time (default: 2)")
    parser.add_argument("--quick", action="store_true", help="four graphs, three budgets, a small model of the issue")
    parser.add_argument("--again", action="store_true", help="also what was done before")
    parser.add_argument("--page", type=Path, help="where the page goes (default: results/arena.html, arena_quick.html)")
    options = parser.parse_args()
    name = "arena_quick" if options.quick else "arena"
    if options.quick:
        options.seconds, options.proof_seconds = min(options.seconds, 0.5), min(options.proof_seconds, 0.5)
    known = {} if options.again else read(name)
    settings = settings_of(options)
    if known.get("settings") != settings:
        known = {"settings": settings, "graphs": {}}
    begun = time.monotonic()
    warm_up()
    asked = options.graphs or list(QUICK if options.quick else GRAPHS)
    run_graphs([graph for graph in asked if graph not in known["graphs"]], options, known, name)
    if "executed" not in known:
        methods = [contender(method) for method in settings["methods"] if not options.quick or method in RUN_QUICKLY]
        known["executed"] = list(executed(methods, options.seconds, 1 if options.quick else 5))
        write(name, COLUMNS, summary(verdicts_of(known)), known)
    known["minutes"] = known.get("minutes", 0.0) + (time.monotonic() - begun) / 60
    verdicts = verdicts_of(known)
    publish(name, COLUMNS, summary(verdicts), known)
    about = [*((key, str(value)) for key, value in machine().items()), ("minutes", f"{known['minutes']:.1f}")]
    page = write_arena(verdicts, options.page or RESULTS / f"{name}.html", known["executed"], known["reported"], about)
    print(f"the page is {page}, made in {known['minutes']:.1f} minutes")
    faults = faults_of(verdicts, known)
    print(f"against our claims: {'; '.join(faults) or 'nothing'}")
    print(f"ours costs more than a method at its peak, without a claim: {'; '.join(behind(verdicts)) or 'nowhere'}")
    sys.exit(1 if faults else 0)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """What makes rows of an earlier run comparable."""
    return {
        "seconds": options.seconds,
        "proof_seconds": options.proof_seconds,
        "places": list(QUICK_PLACES if options.quick else PLACES),
        "methods": options.methods or [one.name for one in contenders()],
    }


def read(name: str) -> dict[str, Any]:
    """What an earlier run has written."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text())["details"] if path.exists() else {}


def run_graphs(asked: Sequence[str], options: argparse.Namespace, known: dict[str, Any], name: str) -> None:
    """Judge graphs and run the issue's model in processes of their own, and write each when it is done."""
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        jobs: dict[Future[Any], str] = {}
        if "reported" not in known:  # it takes longest; its bytes do not depend on what runs beside it
            jobs[pool.submit(reported, *REPORTED[options.quick])] = ""
        jobs |= {pool.submit(of_graph, graph, known["settings"]): graph for graph in asked}
        for job in as_completed(jobs):
            if not jobs[job]:
                known["reported"] = job.result()
                continue
            known["graphs"][jobs[job]] = job.result()
            verdicts = verdicts_of(known)
            print(*("  ".join(row) for row in summary(verdicts) if row[0] == jobs[job]), sep="\n", flush=True)
            write(name, COLUMNS, summary(verdicts), known)


def of_graph(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Every method on one graph."""
    begun = time.monotonic()
    graph = (QUICK | GRAPHS)[name]()
    smallest, largest = rx.minimum_budget(graph).known_feasible, checkpoint_all_peak(graph)
    budgets = [int(smallest + place * (largest - smallest)) for place in settings["places"]]
    methods = [contender(method) for method in settings["methods"]]
    verdicts = judge(graph, methods, budgets, settings["seconds"], settings["proof_seconds"])
    return {
        "operations": graph.n,
        "smallest": smallest,
        "keep_all": largest,
        "budgets": budgets,
        "seconds": time.monotonic() - begun,
        "verdicts": [verdict.to_document() | {"graph": name} for verdict in verdicts],
    }


def verdicts_of(known: dict[str, Any]) -> list[Verdict]:
    """All verdicts, graphs in the order of the lists."""
    order = [graph for graph in (GRAPHS | QUICK) if graph in known["graphs"]]
    return [Verdict.from_document(entry) for graph in order for entry in known["graphs"][graph]["verdicts"]]


def summary(verdicts: Sequence[Verdict]) -> list[list[str]]:
    """A row for each graph and method: how often it keeps the budget, and how far from the optimum it is there."""
    groups: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.graph, verdict.method), []).append(verdict)
    return [[*group, *summary_cells(rows)] for group, rows in groups.items()]


def summary_cells(rows: Sequence[Verdict]) -> list[str]:
    """Budgets kept, and distances over those, in words.

    >>> summary_cells([Verdict("g", "m", 8, 1.0, 1.5, 8, bound=1.0, ours=1.2, ours_peak=8)])
    ['1 of 1', '25.00 %', '50.00 %', '25.00 %']
    """
    kept = [verdict for verdict in rows if verdict.kept]
    said = f"{len(kept)} of {len(rows)}"
    if not any(verdict.peak is not None for verdict in rows):
        return ["refused" if rows[0].seconds == 0.0 else said, "", "", ""]
    far = worst(rows)
    if far is None:
        return [said, "", "", ""]
    lost = sorted(verdict.at_least for verdict in kept if verdict.at_least is not None)
    return [said, percent(far.at_least), percent(far.at_most), percent(lost[(len(lost) - 1) // 2])]


def percent(share: float | None) -> str:
    """A share in per cent, or "" for None."""
    return "" if share is None else f"{100 * share + 0.0:.2f} %"


def faults_of(verdicts: Sequence[Verdict], known: dict[str, Any]) -> list[str]:
    """What refutes a claim of ours: cheaper than an optimum, below a bound, above a budget, another gradient."""
    said = [f"{v.graph}, {v.method} within {v.peak}: {v.fault}" for v in verdicts if v.fault]
    own = [entry for entry in known.get("executed", ()) if not entry["method"].startswith("PyTorch")]
    for entry in own:
        said += [f"{entry['method']}, executed: gradients differ"] if entry["gradients_equal"] is False else []
        said += [f"{entry['method']}, executed: buffers differ"] if entry["buffers_equal"] is False else []
    return said + [f"model of the issue, {text}" for text in wrong(known.get("reported", []))]


def behind(verdicts: Sequence[Verdict]) -> list[str]:
    """Where a method costs less than ours, which claims nothing there."""
    return [
        f"{v.graph}, {v.method} within {v.peak}: {percent(-(v.at_least or 0.0))}"
        for v in verdicts
        if v.at_least is not None and v.at_least < -1e-9 and not v.fault
    ]


if __name__ == "__main__":
    main()
