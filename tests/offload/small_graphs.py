"""The small graphs whose optimal plans are known, from tests/data/offload_small_graphs.json."""

import json
import math
import random
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from remat_explorer.graph import Graph, Value, operation
from remat_explorer.offload import Drop, Fetch, Send, TransferPlan, Transfers
from remat_explorer.plan import Compute, Free

DOCUMENT = json.loads((Path(__file__).parents[1] / "data" / "offload_small_graphs.json").read_text())


@dataclass(frozen=True)
class Instance:
    graph: Graph
    transfers: Transfers
    budget: int
    makespan: float | None
    timeout: bool
    peak: int | None
    host_peak: int | None
    letters: str
    any_order: bool

    @property
    def plan(self) -> TransferPlan:
        """The known plan, with what it holds in the end freed."""
        return plan_of(self.graph, self.transfers, self.letters.split())

    def __str__(self) -> str:
        return f"{self.graph.name}-{self.budget}-{self.transfers}"


def graph_of(name: str) -> Graph:
    entry = DOCUMENT["graphs"][name]
    columns = (entry[key] for key in ("cost", "size", "workspace", "persistent", "inputs"))
    rows = list(zip(*columns, strict=True))
    return Graph(
        name,
        tuple(Value(f"v{k}", size, bool(persistent)) for k, (_, size, _, persistent, _) in enumerate(rows)),
        tuple(
            operation(f"v{k}", "forward", sorted(set(inputs)), [k], cost, workspace)
            for k, (cost, _, workspace, _, inputs) in enumerate(rows)
        ),
    )


def plan_of(graph: Graph, transfers: Transfers, words: list[str]) -> TransferPlan:
    statements: list[Any] = []
    held: set[int] = set()
    host: set[int] = set()
    first = 0
    stage = 0
    for word in words:
        letter, number = word[0], int(word[1:])
        if letter == "c":
            statements.append(Compute(first, number, 1, number == first))
            first += number == first
            held.add(number)
        else:
            kind = {"x": Free, "s": Send, "f": Fetch, "d": Drop}[letter]
            statements.append(kind(min(first, graph.n - 1), number))
            (host if letter in "sd" else held).symmetric_difference_update({number})
        stage = min(first, graph.n - 1)
    statements += [Free(stage, v) for v in sorted(held) if not graph.persistent[v]]
    statements += [Drop(stage, v) for v in sorted(host)]
    return TransferPlan(graph, transfers, tuple(statements))


def drawn_graph(seed: int, n: int = 9) -> Graph:
    """A small graph with several outputs, persistent values and workspace."""
    draw = random.Random(seed)
    values: list[Value] = []
    operations = []
    for k in range(n):
        recent = list(range(max(0, len(values) - 6), len(values)))
        reads = sorted(draw.sample(recent, min(len(recent), draw.choice((1, 1, 2, 3)))))
        writes = list(range(len(values), len(values) + draw.choice((1, 1, 2))))
        values += [Value(f"v{v}", draw.randint(1, 4), draw.random() < 0.1) for v in writes]
        operations.append(operation(f"o{k}", "forward", reads, writes, draw.randint(1, 8), draw.choice((0, 0, 1))))
    return Graph(f"drawn{seed}", tuple(values), tuple(operations), draw.choice((0, 3)))


def drawn_instances() -> list[Instance]:
    """200 more, of the graphs of `single_output_graph`, with optima of an exhaustive search outside of this project."""
    document = json.loads((Path(__file__).parents[1] / "data" / "offload_drawn_optima.json").read_text())
    return [
        Instance(
            single_output_graph(seed),
            Transfers(rate, rate, latency, room, duplex),
            budget,
            makespan,
            timeout=False,
            peak=None,
            host_peak=None,
            letters="",
            any_order=False,
        )
        for seed, budget, rate, latency, duplex, room, makespan in document["instances"]
    ]


def single_output_graph(seed: int) -> Graph:
    """Five to seven operations with one output each."""
    draw = random.Random(1000 + seed)
    values: list[Value] = []
    operations = []
    for k in range(draw.randint(5, 7)):
        recent = list(range(max(0, k - 4), k))
        reads = sorted(draw.sample(recent, min(len(recent), draw.choice((1, 1, 2)))))
        cost, size, workspace, persistent = (
            draw.randint(1, 5),
            draw.randint(1, 4),
            draw.choice((0, 0, 1)),
            draw.random(),
        )
        values.append(Value(f"v{k}", size, persistent < 0.15))
        operations.append(operation(f"o{k}", "forward", reads, [k], cost, workspace))
    return Graph(f"single{seed}", tuple(values), tuple(operations))


def _number(text: str) -> float:
    return math.inf if text == "inf" else float(Fraction(text))


def instances() -> list[Instance]:
    known: dict[str, Graph] = {}
    found = []
    for row in DOCUMENT["instances"]:
        entry = dict(zip(DOCUMENT["columns"], row, strict=True))
        graph = known.setdefault(entry["graph"], graph_of(entry["graph"]))
        rates = [_number(entry[key]) for key in ("out", "back", "latency")]
        found.append(
            Instance(
                graph,
                Transfers(rates[0], rates[1], rates[2], entry["host_bytes"], entry["duplex"]),
                entry["budget"],
                None if entry["makespan"] is None else _number(entry["makespan"]),
                entry["why"] == "timeout",
                entry["peak"],
                entry["host_peak"],
                entry["plan"],
                entry["order"] == "free",
            )
        )
    return found
