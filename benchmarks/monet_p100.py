"""Every problem that the authors of MONeT published a run of, on their costs of a P100, solved here beside it.

    python benchmarks/monet_p100.py
    python benchmarks/monet_p100.py --quick
    python benchmarks/monet_p100.py --table       # docs/papers.md alone, from the results that are there
    python benchmarks/monet_p100.py --networks vgg16 unet --modes icmn --seconds 30 --subset

Modes are MONeT's: what runs in place (i), convolution algorithms, and ReLU backward from its output (c), backward from
input or output (m), masks and indices (n); "checkmate" is Checkmate's problem, for which the strategy is `optimal`. As
in their program, what runs in place does so only where its input dies. "!" marks a row that costs more than theirs, "~"
one whose published run is of another problem. --subset solves each problem with default implementations as well, by
`optimal`, and marks with "?" where a choice costs more than that. --fastest keeps, too, what a schedule costs once the
convolutions have the fastest algorithms that fit; Figures 3, 4 and 6 of `papers.py` take it from here.

Targets, 60 s on two cores: no "!" and no "?"; a gap of at most 1 % on VGG-16 and U-Net, 2 % on the others. A row is
written when it is done, and not done again by the next run with as many seconds; --again does, but for --subset. The
178 rows take at most 3 hours; those that are proven early end then. Theirs are runs of Gurobi 9.0 with 12 threads and
more, of up to 24 hours. Limits are of wall time, so the load of the machine stands beside each row.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import RESULTS, fill, publish, write

import remat_explorer as rx
from remat_explorer.solvers import default_selection
from remat_explorer.solvers.search.compilation import warm_up
from reproduction.p100 import GIB, OTHER_PROBLEM, fastest_cost, has_graph, p100_graph, published_runs, strategy_of

UNIT = 1e-5  # seconds: their objectives and bounds are whole numbers of 1/100 ms
QUICK = ("vgg16_icmn", "unet_icmn", "vgg16_checkmate")
COLUMNS = ("problem", "ours, ms", "bound", "gap", "s", "theirs, ms", "their bound", "their s", "ours/theirs")
PAGE = Path(__file__).parents[1] / "docs" / "papers.md"
BEGINS, ENDS = "<!-- runs: python benchmarks/monet_p100.py --table -->", "<!-- end of the runs -->"
SOURCE = "Shah et al., ICLR 2021; https://github.com/utsaslab/monet-schedules"
OTHER = tuple(f"{network}_{mode}@{gib:g}" for network, mode, gib in OTHER_PROBLEM)


@dataclass(frozen=True)
class Problem:
    """One network, mode and budget, and the best of the published runs.

    Attributes:
        network, mode: as published; "checkmate" is the mode in which they ran Checkmate's program.
        gib: the budget.
        cost, bound: seconds of the step; None where nothing was found or proven.
        wall: seconds of the run that found it, None where there is no log.
        status: how that run ended, in words.
    """

    network: str
    mode: str
    gib: float
    cost: float | None
    bound: float | None
    wall: float | None
    status: str

    @property
    def name(self) -> str:
        """What the row is called: the graph and the budget."""
        return f"{self.network}_{self.mode}@{self.gib:g}"

    @property
    def strategy(self) -> str:
        """What solves the same problem here."""
        return strategy_of(self.mode)

    def is_worse(self, cost: float | None) -> bool:
        """Whether a cost is above the published one."""
        return self.cost is not None and (cost is None or cost > self.cost + UNIT / 2)


def problems() -> list[Problem]:
    """The published problems whose costs were published, too."""
    listed = []
    for (network, mode, gib), run in published_runs().items():
        if has_graph(network, mode):
            cost, bound = (None if run[key] is None else run[key] / 1e3 for key in ("ms", "bound ms"))
            listed.append(Problem(network, mode, gib, cost, bound, run["seconds"], run["status"]))
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", help="some of them (default: all)")
    parser.add_argument("--modes", nargs="+", help="some of them (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each solve, at most (default: 60)")
    parser.add_argument("--quick", action="store_true", help="three graphs, 10 s each, and nothing is written")
    parser.add_argument("--subset", action="store_true", help="default implementations alone as well")
    parser.add_argument("--fastest", action="store_true", help="rows without the cost by fastest algorithms, again")
    parser.add_argument("--gib", nargs="+", type=float, help="some of the budgets (default: all)")
    parser.add_argument("--again", action="store_true", help="also what was done before")
    parser.add_argument("--table", action="store_true", help="put what is packed now beside our results, solve nothing")
    options = parser.parse_args()
    if options.table:
        known = read()
        for problem in problems():
            if problem.name in known:
                known[problem.name] |= beside(problem, known[problem.name]["ours"])
        publish("monet_p100", COLUMNS, rows_of(known), known, source=SOURCE)
        fill(PAGE, BEGINS, ENDS, page_text(known))
        return
    seconds = min(options.seconds, 10.0) if options.quick else options.seconds
    known = {} if options.quick else read()
    warm_up()
    asked = [p for p in problems() if not options.quick or f"{p.network}_{p.mode}" in QUICK]
    asked = [p for p in asked if p.network in (options.networks or [p.network])]
    asked = [p for p in asked if p.gib in (options.gib or [p.gib])]
    for problem in [p for p in asked if p.mode in (options.modes or [p.mode])]:
        done = known.get(problem.name, {})
        useful = done.get("seconds_allowed") == seconds and ("fastest" in done["ours"] or not options.fastest)
        kept = {key: done[key] for key in done if key == "subset" or not options.again} if useful else {}
        entry = solved(problem, seconds, options.subset, kept)
        if entry == done:
            continue
        known[problem.name] = entry
        print(" | ".join(row(problem.name, entry)), flush=True)
        if not options.quick:
            write("monet_p100", COLUMNS, rows_of(known), known, source=SOURCE)
    rows = rows_of(known)
    if not options.quick and rows:
        publish("monet_p100", COLUMNS, rows, known, source=SOURCE)
        fill(PAGE, BEGINS, ENDS, page_text(known))
    print(summary(known))


def page_text(known: dict[str, Any]) -> str:
    """What docs/papers.md says of the results; the rows stand on a page of the site."""
    if not known:
        return "Not run yet."
    told = summary(known)
    return f"{told[0].upper()}{told[1:]}."


def read() -> dict[str, Any]:
    """What an earlier run has written."""
    path = RESULTS / "monet_p100.json"
    return json.loads(path.read_text())["details"] if path.exists() else {}


def solved(problem: Problem, seconds: float, subset: bool, done: dict[str, Any] | None = None) -> dict[str, Any]:
    """A problem solved here, beside what was published; what of it is in ``done`` is not done again."""
    graph = p100_graph(problem.network, problem.mode, ruled=True)
    budget = int(problem.gib * GIB)
    entry = dict(done or {})
    if "ours" not in entry:
        ours, solution = outcome(graph, budget, problem.strategy, seconds)
        ours["fastest"] = fastest_cost(solution, problem.network, problem.mode)
        entry |= {"ours": ours, "seconds_allowed": seconds}
    entry |= beside(problem, entry["ours"])
    if subset and "subset" not in entry and problem.strategy != "optimal":
        plain, _ = outcome(default_selection(graph).graph, budget, "optimal", seconds)
        entry["subset"] = plain
    if "subset" in entry:
        entry["loses_to_subset"] = problem_loses(entry["ours"]["cost"], entry["subset"]["cost"])
    return entry


def beside(problem: Problem, ours: dict[str, Any]) -> dict[str, Any]:
    """What was published of a problem, and whether ours costs more."""
    theirs = {key: getattr(problem, key) for key in ("cost", "bound", "wall", "status")}
    return {"theirs": theirs, "worse": problem.is_worse(ours["cost"])}


def problem_loses(cost: float | None, plain: float | None) -> bool:
    """Whether a choice costs more than the defaults, which are among what it may choose."""
    return plain is not None and (cost is None or cost > plain * (1 + 1e-9))


def outcome(graph: rx.Graph, budget: int, strategy: str, seconds: float) -> tuple[dict[str, Any], rx.Solution]:
    """Cost, bound, gap and seconds of one solve, and what it found."""
    begun, processor = time.monotonic(), time.process_time()
    solution = rx.solve(graph, budget, strategy, time_limit=seconds)
    told = {
        "strategy": strategy,
        "status": solution.status.value,
        "cost": solution.cost,
        "bound": solution.lower_bound,
        "gap": solution.gap,
        "wall": time.monotonic() - begun,
        "processor": time.process_time() - processor,
        "load": os.getloadavg()[1],
    }
    return told, solution


def rows_of(known: dict[str, Any]) -> list[list[str]]:
    """The table's rows, by network and mode and then by budget."""
    return [row(name, known[name]) for name in sorted(known, key=lambda n: (n.split("@")[0], float(n.split("@")[1])))]


def row(name: str, entry: dict[str, Any]) -> list[str]:
    """The table's row."""
    ours, theirs = entry["ours"], entry["theirs"]
    other = name in OTHER
    mark = "~" if other else "!" * entry["worse"] + "?" * entry.get("loses_to_subset", False)
    both = ours["cost"] is not None and theirs["cost"] is not None
    ratio = f"{100 * (ours['cost'] / theirs['cost'] - 1):+.2f} %" if both and not other else ""
    return [
        name + mark,
        milliseconds(ours["cost"]) or ours["status"],
        milliseconds(ours["bound"]),
        "" if ours["gap"] is None else f"{100 * ours['gap']:.2f} %",
        f"{ours['wall']:.0f}",
        milliseconds(theirs["cost"]) or theirs["status"],
        milliseconds(theirs["bound"]),
        "" if theirs["wall"] is None else f"{theirs['wall']:.0f}",
        ratio,
    ]


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def summary(known: dict[str, Any]) -> str:
    """How often ours costs less than, as much as, or more than theirs, by how much, and the largest gap."""
    both = [e for name, e in known.items() if e["theirs"]["cost"] is not None and name not in OTHER]
    worse = [entry for entry in both if entry["worse"]]
    less = sum(not entry["worse"] and entry["ours"]["cost"] < entry["theirs"]["cost"] - UNIT / 2 for entry in both)
    said = (
        f"of {len(both)} problems with a published schedule, ours costs less in {less}, as much in "
        f"{len(both) - less - len(worse)}, more in {len(worse)}"
    )
    if worse:
        said += f", by at most {100 * max(excess(entry) for entry in worse):.2g} %"
    below = sum(
        entry["ours"]["cost"] < bound - UNIT / 2
        for entry in both
        if (bound := entry["theirs"]["bound"]) is not None and entry["ours"]["cost"] is not None
    )
    said += f". In {below} ours costs less than their lower bound (our problem is wider)"
    gaps = {name: entry["ours"]["gap"] for name, entry in known.items() if entry["ours"]["gap"] is not None}
    if gaps:
        widest = max(gaps, key=gaps.__getitem__)
        said += f". The widest gap is {100 * gaps[widest]:.2f} % (row {widest})"
    plain = [entry for entry in known.values() if "subset" in entry]
    if plain:
        loses = sum(entry["loses_to_subset"] for entry in plain)
        without = [entry for entry in plain if entry["subset"]["cost"] is None]
        alone = sum(entry["ours"]["cost"] is not None for entry in without)
        said += f". Of {len(plain)} problems with a choice of implementations, ours costs more than the "
        said += f"defaults in {loses}"
        if without:
            said += f"; it has a schedule where the defaults have none in {alone}, and neither has one in "
            said += f"{len(without) - alone}"
    return said


def excess(entry: dict[str, Any]) -> float:
    """How far ours is above theirs, as a share; infinite where nothing was found."""
    ours = entry["ours"]["cost"]
    return float("inf") if ours is None else ours / entry["theirs"]["cost"] - 1


if __name__ == "__main__":
    main()
