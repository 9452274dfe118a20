"""MONeT's networks on this GPU: each profiled with every implementation, cuDNN's plans among them, and its Table 1.

The profiled graphs go into the file, so that the table and Figures 3, 5 and 6 can be solved again elsewhere, for as
long as it takes (`python benchmarks/monet.py --settings cuda --profiled FILE`). What needs the device is measured here:
the schedules of Table 1, points of Figure 3 (that at 60 % is Figure 5's), and the convolution of Figure 7.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from monet_models import CPU, CUDA, NETWORKS, Case, Network, case_of
from monet_parts import measured, table_one
from monet_ways import entry_of, ways_of

import remat_explorer as rx
from gpu_parts.memory import emptied
from gpu_parts.schedules import packed, packed_graph
from gpu_parts.work import Work
from remat_explorer.capture import torch_device
from remat_explorer.capture.implementations import cudnn_plans
from remat_explorer.solvers import Solution, checkpoint_all, checkpoint_all_peak
from reproduction import monet_convolutions

FIGURE_7 = "a convolution (Figure 7)"
TABLE_SECONDS = 20.0  # of each network, for the searches of Table 1
SHARES, POINT_SECONDS = (0.8, 0.6, 0.4), 5.0  # of Figure 3
TINY = Network("residual_net", 4, 1.0, 1.0, (4, 32))


def run(work: Work) -> None:
    """The convolution, Table 1 of every network, and then measured points of Figure 3."""
    networks = [TINY.name] if work.tiny else list(NETWORKS)
    figures = [f"{name}: Figure 3" for name in networks]
    cases: dict[str, Case] = {}

    def measure(name: str) -> dict[str, Any]:
        if name == FIGURE_7:
            return convolution(work)
        network = name.partition(":")[0]
        if network not in cases:
            cases[network] = case(network, work)
        found = points(cases[network], work) if name in figures else table(cases[network], work)
        emptied(work.device)
        return found

    work.each([FIGURE_7, *networks, *figures], measure)


def case(name: str, work: Work) -> Case:
    """A network with measured implementations."""
    if not work.tiny:
        return case_of(name, CUDA if work.device.startswith("cuda") else CPU)
    loaded = rx.models.load(name, *TINY.small, device=work.device)
    graph = rx.capture(loaded.module, loaded.args, implementations="all")
    graph = rx.profile(dataclasses.replace(graph, name=name), loaded.module, loaded.args, device=work.device)
    setting = CUDA if work.device.startswith("cuda") else CPU
    return Case(TINY, setting, graph, f"batch {loaded.batch}", (loaded.module, loaded.args))


def table(case: Case, work: Work) -> dict[str, Any]:
    """The network's row of Table 1; the profiled graph is written before anything is solved."""
    ways = [way.name for node in case.graph.operations for way in node.implementations]
    entry = {
        "size": case.size,
        "graph": packed_graph(case.graph),
        "published": None if case.network is TINY else case.network.ratio,
        "operations": case.graph.n,
        "implementations": len(ways),
        "of cuDNN": sum(name.startswith("cuDNN ") for name in ways),
        "cudnn": cudnn_plans.why_not(torch_device(work.device)) or "available",
    }
    work.keep(case.network.name, entry, running=case.network.name)
    seconds = min(2.0 if work.tiny else TABLE_SECONDS, max(1.0, work.left / 2))
    return entry | table_one(case, seconds)


def points(case: Case, work: Work) -> dict[str, Any]:
    """The joint problem solved and measured at a few budgets."""
    graph, rows = case.graph, []
    peak, way = checkpoint_all_peak(graph), ways_of(graph)["monet"]
    for share in SHARES:
        if work.left <= 0:
            break
        seconds = min(1.0 if work.tiny else POINT_SECONDS, max(1.0, work.left))
        found = way.solve(int(share * peak), seconds)
        row: dict[str, Any] = {"share": share} | entry_of(found, graph.total_cost)
        if isinstance(found, Solution) and found.schedule is not None:
            document = found.to_document()
            row["schedule"] = packed({"R": document["R"], "S": document["S"], "strategy": found.strategy})
            row["measured"] = measured(case, found)
        rows.append(row)
    return {"size": case.size, "eager_peak": peak, "points": rows}


def convolution(work: Work) -> dict[str, Any]:
    """Every implementation of one convolution: its time and workspace."""
    begun = time.monotonic()
    graph = monet_convolutions.profiled_convolution("small" if work.tiny else "full", lambda doing: None, work.device)
    operation = monet_convolutions.convolution_of(graph, monet_convolutions.LAYER)
    rows = monet_convolutions.rows_of(checkpoint_all(graph), operation)
    cudnn_words = cudnn_plans.why_not(torch_device(work.device)) or "available"
    return {
        "rows": rows,
        "graph": packed_graph(graph),
        "cudnn": cudnn_words,
        "measured_in": round(time.monotonic() - begun, 1),
    }
