"""Predicted costs against what MONeT's authors measured on a P100: by type of operation, by network, by schedule.

    python benchmarks/costs.py                         # from the table in tests/data
    python benchmarks/costs.py --fit                   # and print the shares that fit the table best
    python benchmarks/costs.py --extract FOLDER        # make the table anew from FOLDER/costs_NETWORK.json

Compared are the plain roofline and the kernels of `remat_explorer.capture.predicted_costs`. "Left out" are the
kernels with shares fitted to the four other networks. For the order of schedules, schedules of two kinds within several
budgets are priced by measured and by predicted times: those found by a search, and those of a greedy run (DTR) on costs
that are wrong at random. What was not measured costs the same in both. "Worse" is by how much, at most, a schedule
searched for by predicted costs exceeds one searched for by measured ones; searches that end at the time limit differ
by themselves.

Targets: the total of each network within 15 %, left out too; Kendall's tau of schedules at least 0.95.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from cost_fitting import fitted, of_measured
from p100_measurements import NETWORKS, TABLE, Measured, Network, extract, networks
from report import publish, table

import remat_explorer as rx
from remat_explorer.capture import find_device
from remat_explorer.capture.predicted_costs import SHARES, roofline
from remat_explorer.documents import write_text
from remat_explorer.graph import Graph

P100 = find_device("P100-roofline"), find_device("P100")
BUDGETS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.95)  # from the smallest one with a known schedule to what everything takes
SPREAD = 1.0  # standard deviation of the logarithms of wrong costs
COLUMNS = ("type of operation", "number", "ms", "roofline", "kernels", "median", "10 %", "90 %")
NETWORK_COLUMNS = ("network", "ms", "matched", "roofline", "kernels", "left out", "schedules")
NETWORK_COLUMNS += ("tau roofline", "tau kernels", "within a budget", "worse roofline", "worse kernels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measurements", type=Path, default=TABLE, help="the table (default: that of the tests)")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for each search of a schedule")
    parser.add_argument("--random", type=int, default=10, help="wrong costs for each budget (default: 10)")
    parser.add_argument("--fit", action="store_true", help="print the shares that fit the table best")
    parser.add_argument("--extract", type=Path, metavar="FOLDER", help="write the table from published files, and stop")
    options = parser.parse_args()
    if options.extract:
        print(write_text(TABLE, json.dumps(extract(options.extract), separators=(",", ":")) + "\n"))
        return
    found = list(networks(options.measurements, options.networks))
    every = [one for network in found for one in network.measured]
    if options.fit:
        shares, untold = fitted(every)
        print({name: f"{share:.2g}" for name, share in dataclasses.asdict(shares).items()}, "untold:", untold)
    types = {kind: spread([one for one in every if one.type == kind]) for kind in sorted({one.type for one in every})}
    rows = [
        [kind, str(of["number"]), f"{of['ms']:.1f}", f"{of['roofline']:.2f}", f"{of['kernels']:.2f}"]
        + [f"{of['quantiles'][name]:.2f}" for name in ("50 %", "10 %", "90 %")]
        for kind, of in sorted(types.items(), key=lambda pair: -pair[1]["ms"])
    ]
    print(table(COLUMNS, rows), flush=True)
    totals = {network.name: whole(network, found, options) for network in found}
    summary = [
        [name, f"{of['ms']:.0f}", f"{of['matched']:.1%}"]
        + [f"{of[way]:.3f}" for way in ("roofline", "kernels", "left_out")]
        + [str(of["schedules"])]
        + [f"{of['tau'][way]:.3f}" for way in ("roofline", "kernels", "kernels within a budget")]
        + [f"{of['worse'][way]:+.2%}" for way in ("roofline", "kernels")]
        for name, of in totals.items()
    ]
    details = {"types": types, "types_table": table(COLUMNS, rows).splitlines(), "networks": totals}
    publish("costs", NETWORK_COLUMNS, summary, details | {"shares": dataclasses.asdict(SHARES)}, budgets=BUDGETS)


def spread(every: list[Measured]) -> dict[str, Any]:
    """Predicted over measured times of one type: of the sums, and quantiles of single operations by kernels."""
    ms = np.array([one.ms for one in every])
    kernels = np.array([of_measured(one, SHARES) for one in every])
    rooflines = np.array([_roofline(one) for one in every])
    with np.errstate(divide="ignore"):
        levels = {f"{level} %": float(np.percentile(kernels / ms, level)) for level in (10, 50, 90)}
    sums = {"roofline": rooflines.sum() / ms.sum(), "kernels": kernels.sum() / ms.sum()}
    return {"number": len(every), "ms": float(ms.sum()), **{k: float(v) for k, v in sums.items()}, "quantiles": levels}


def _roofline(one: Measured) -> float:
    """Milliseconds of the calls of an operation by the plain roofline."""
    return sum(1e3 * roofline([call], one.fakes, P100[0]) for call in one.calls)


def whole(network: Network, found: list[Network], options: argparse.Namespace) -> dict[str, Any]:
    """The totals of a network, and the order of its schedules."""
    ms = sum(one.ms for one in network.measured)
    others = [one for other in found if other is not network for one in other.measured]
    left_out, untold = fitted(others) if others else (SHARES, [])
    of: dict[str, Any] = {
        "roofline": sum(map(_roofline, network.measured)) / ms,
        "kernels": sum(of_measured(one, SHARES) for one in network.measured) / ms,
        "left_out": sum(of_measured(one, left_out) for one in network.measured) / ms,
    }
    graphs = priced(network)
    schedules, worse = schedules_of(graphs, options.time_limit, options.random)
    costs = {way: np.array([schedule @ _costs(graphs[way]) for _, schedule in schedules]) for way in graphs}
    budgets = np.array([budget for budget, _ in schedules])
    taus = {way: tau(costs["measured"], costs[way]) for way in ("roofline", "kernels")}
    within = [
        tau(costs["measured"][budgets == budget], costs["kernels"][budgets == budget])
        for budget in BUDGETS
        if sum(budgets == budget) > 2
    ]
    taus["kernels within a budget"] = float(np.median(within))
    of |= {"ms": ms, "matched": ms / network.published_ms, "untold": untold, "schedules": len(schedules)}
    of |= {"tau": taus, "tau_within_budgets": within, "worse": worse}
    print(network.name, of, flush=True)
    return of


def priced(network: Network) -> dict[str, Graph]:
    """The captured graph with measured costs, with those of a roofline, and with those of kernels."""
    places = {call.node: k for k, body in enumerate(network.program.bodies) for call in body.calls}
    base = network.program.graph
    plain = [roofline([c.node for c in body.calls], network.program.fakes, P100[0]) for body in network.program.bodies]
    costs = {way: np.array(plain) for way in ("measured", "roofline", "kernels")}
    for one in network.measured:
        times = {"measured": one.ms / 1e3, "kernels": of_measured(one, SHARES) / 1e3, "roofline": _roofline(one) / 1e3}
        for call in one.calls:
            for way, seconds in times.items():
                costs[way][places[call]] += seconds / len(one.calls) - roofline([call], one.fakes, P100[0])
    return {way: with_costs(base, numbers) for way, numbers in costs.items()}


def with_costs(graph: Graph, costs: np.ndarray) -> Graph:
    """The graph with other costs of its default implementations, never 0."""
    operations = [
        dataclasses.replace(
            node, implementations=(dataclasses.replace(node.default, cost=max(1e-6, float(cost))),), optional=False
        )
        for node, cost in zip(graph.operations, costs, strict=True)
    ]
    return dataclasses.replace(graph, operations=tuple(operations))


def _costs(graph: Graph) -> np.ndarray:
    return np.array([node.default.cost for node in graph.operations])


def schedules_of(graphs: dict[str, Graph], limit: float, wrong: int) -> tuple[list[Any], dict[str, float]]:
    """Budgets with how often each operation runs in different schedules, and how much worse predicted costs make them.

    The second: by how much a schedule that was searched for by predicted costs exceeds, in measured costs, the one that
    was searched for by measured ones, at the budget where it is most.
    """
    draw = np.random.default_rng(0)
    right, counts, worse = _costs(graphs["measured"]), {}, {"roofline": 0.0, "kernels": 0.0}
    smallest = rx.minimum_budget(graphs["measured"], seconds=limit)
    for share in BUDGETS:
        room = smallest.checkpoint_all_peak - smallest.known_feasible
        budget, best = smallest.known_feasible + int(share * room), {}
        for way, graph in graphs.items():
            solution = rx.solve(graph, budget, time_limit=limit)
            if solution.schedule is not None:
                best[way] = solution.schedule.R.sum(axis=0)
                counts[share, tuple(best[way])] = best[way]
        for way in worse:
            if {way, "measured"} <= best.keys():
                worse[way] = max(worse[way], float(best[way] @ right / (best["measured"] @ right) - 1))
        for _ in range(wrong):
            graph = with_costs(graphs["measured"], right * np.exp(SPREAD * draw.standard_normal(len(right))))
            solution = rx.solve(graph, budget, strategy="dtr", time_limit=limit)
            if solution.schedule is not None:
                runs = solution.schedule.R.sum(axis=0)
                counts[share, tuple(runs)] = runs
    return [(share, runs) for (share, _), runs in counts.items()], worse


def tau(first: np.ndarray, second: np.ndarray) -> float:
    """Kendall's tau of two orders: pairs in the same order minus those in the other, by all pairs."""
    pairs = np.triu_indices(len(first), 1)
    signs = [np.sign(np.subtract.outer(costs, costs)[pairs]) for costs in (first, second)]
    return float(np.mean(signs[0] * signs[1]))


if __name__ == "__main__":
    main()
