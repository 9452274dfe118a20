"""What the authors of MONeT measured on a P100, and what their solver found in a day: graphs, runs, and plain PyTorch.

A graph of a mode has the implementations that may be chosen in it, each with the time and the workspace that were
measured. Costs are seconds. A run's objective is a prediction by the same times.

Source: Shah et al., Memory Optimization for Deep Networks (ICLR 2021), https://github.com/utsaslab/monet-schedules, and
the README of https://github.com/utsaslab/MONeT for plain PyTorch. The first has no licence file: what is here are its
facts, numbers alone, in another form.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from remat_explorer.errors import UnknownNameError
from remat_explorer.graph import Graph, Implementation, Operation
from remat_explorer.graph.rules import stands_in
from remat_explorer.papers.networks import data_file

NETWORKS = {"resnet50": 184, "googlenet": 320, "unet": 11, "vgg16": 176, "mobilenet_v2": 272}  # with the batch
MODES = {  # the paper's word for each mode of its program; in all of them ReLU may run in place
    "i": "none",
    "ic": "conv-optimized",
    "im": "output-activated",
    "in": "intermediate-activated",
    "icmn": "all",
}
GIB = 2**30
# Published runs of another problem than the published one: of other costs, or of a ReLU6 that reads its input.
OTHER_PROBLEM = (
    ("resnet50", "im", 10.0),
    ("resnet50", "in", 8.0),
    ("resnet50", "in", 9.0),
    ("resnet50", "in", 10.0),
    ("mobilenet_v2", "i", 8.0),
)


def p100_graph(network: str, mode: str, ruled: bool = False) -> Graph:
    """The training graph of a network with the implementations of a mode.

    Args:
        network: a key of `NETWORKS`.
        mode: a key of `MODES`, or "checkmate" for one implementation of each operation, without workspace.
        ruled: whether an operation of the forward pass may run in place only where its input dies, as the authors'
            program asks. Otherwise it may where the input lives on, too, at the same cost.

    Raises:
        UnknownNameError: if nothing of that network and mode was published.

    >>> p100_graph("vgg16", "ic").n
    97
    """
    names = _archive().namelist()
    if (name := f"{network}_{mode}.json") not in names:
        raise UnknownNameError("graph of the P100", f"{network}_{mode}", [n.removesuffix(".json") for n in names])
    graph = Graph.from_document(json.loads(_archive().read(name)))
    return replace(graph, operations=tuple(map(_in_place, graph.operations))) if ruled else graph


def _in_place(node: Operation) -> Operation:
    """The operation with its implementations that run in place marked; the others come first.

    A default runs anywhere, and where an operation has no implementation for elsewhere, there is nothing to ask for.
    """

    def marked(way: Implementation) -> Implementation:
        only = replace(way, in_place=True)
        elsewhere = [other for other in node.implementations if other.overwrites is None]
        elsewhere += [replace(other, kinds=()) for other in elsewhere if "out of place" in other.kinds]
        fits = node.phase == "forward" and way.overwrites is not None
        return only if fits and any(stands_in(other, only) for other in elsewhere) else way

    ways = [marked(way) for way in node.implementations]
    if not any(way.in_place for way in ways):
        return node
    first = next(way for way in ways if not way.in_place)
    rest = [way for way in ways if way is not first]
    ways = [replace(first, kinds=()), *(replace(way, kinds=way.kinds or ("in place",)) for way in rest)]
    return replace(node, implementations=tuple(ways))


def has_graph(network: str, mode: str) -> bool:
    """Whether costs of a network in a mode were published.

    >>> has_graph("mobilenet_v2", "im"), has_graph("mobilenet_v2", "in")
    (True, False)
    """
    return f"{network}_{mode}.json" in _archive().namelist()


@cache
def published_runs() -> dict[tuple[str, str, float], dict[str, Any]]:
    """The best that any run found, by network, mode and budget in GiB: "ms" of the schedule, "bound ms", "seconds".

    "status" is how that run ended, "first seconds" when it had a schedule, "hour ms" the best after an hour. Without
    its log there is none of these, and without a schedule no "ms".

    >>> published_runs()["vgg16", "icmn", 8.0]["ms"]
    1383.33
    """
    return {(run["network"], run["mode"], run["budget GiB"]): run for run in _document()["runs"]}


def pytorch(network: str) -> dict[str, Any]:
    """What plain PyTorch takes of a network: measured "GiB", and "ms", which objectives and measured overheads imply.

    >>> pytorch("resnet50")["GiB"], round(pytorch("resnet50")["ms"])
    (15.06, 877)
    """
    return _document()["pytorch"][network]


def memory_at(network: str, overhead: float) -> float | None:
    """GiB at an overhead over PyTorch, by linear interpolation between the measured runs; None where none is dearer.

    Args:
        network: a key of `NETWORKS`.
        overhead: such as 0.1.

    >>> round(memory_at("resnet50", 0.1), 2), memory_at("vgg16", 0.1)
    (5.74, None)
    """
    runs = ((run["overhead_percent"] / 100, run["memory_gb"]) for run in pytorch(network)["measured"])
    return interpolated(runs, overhead)


def interpolated(runs: Iterable[tuple[float, float]], overhead: float) -> float | None:
    """Memory at an overhead by linear interpolation between runs, or None where all are cheaper or all dearer.

    Args:
        runs: overhead and memory of each, the overhead as a share on top.
        overhead: such as 0.1.

    >>> interpolated([(0.2, 5.0), (0.0, 9.0)], 0.1)
    7.0
    """
    for (cheaper, more), (dearer, less) in pairwise(sorted(runs, key=lambda run: (run[0], -run[1]))):
        if cheaper <= overhead <= dearer:
            return more + (less - more) * (overhead - cheaper) / (dearer - cheaper)
    return None


def smallest_run(network: str) -> tuple[float, float]:
    """GiB and overhead of the measured run with the least memory.

    >>> smallest_run("vgg16")
    (5.51, 0.0911)
    """
    run = min(pytorch(network)["measured"], key=lambda run: run["memory_gb"])
    return run["memory_gb"], run["overhead_percent"] / 100


@cache
def _document() -> dict[str, Any]:
    return json.loads(_archive().read("runs.json"))


@cache
def _archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(data_file("monet_p100_graphs.zip"))
