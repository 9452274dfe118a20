"""Checkmate's Figure 6: the largest batch within 16 GB at one extra forward pass, and both ways to count baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.papers.checkmate.accounting import (
    kept_for_good_peak,
    largest_batch,
    peak_of_stages,
    published_sqrt_n_checkpoints,
    segment_stages,
)
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph, published_batches
from remat_explorer.plan import Plan
from remat_explorer.solvers import STRATEGIES, max_batch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MEMORY = 16 * 10**9
NETWORKS: dict[Settings, tuple[str, ...]] = {
    "small": ("VGG19", "MobileNet", "U-Net"),
    "full": ("VGG19", "MobileNet", "U-Net", "FCN8", "SegNet", "VGG16", "ResNet50"),
}
SECONDS = {"small": 10.0, "full": 60.0}
TWICE = "parameters twice"
KEPT, CHEN, GREEDY = "everything kept", "Chen", "greedy"
RULES = {  # "freed": each value after its last use. On a chain AP and linearized are Chen's own rules
    "AP √n, freed": "ap-sqrt-n",
    "AP greedy, freed": "ap-greedy",
    "linearized greedy, freed": "linearized-greedy",
}
FREED = f"{KEPT}, freed"
COLUMNS = {
    f"{KEPT}, {TWICE}": "everything kept, by the authors' program",
    f"{CHEN}, {TWICE}": "AP √n, by the authors' program",
    FREED: "everything kept, freed after use",
    "AP √n, freed": "AP √n, freed after use",
    "linearized greedy, freed": "linearized greedy, freed after use",
    "published": "published for Checkmate",
    "batch": "found here",
}


def figure_6(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """The largest batch of each network, with its bound, beside those of the baselines counted in every way."""
    rows = []
    for name in NETWORKS[settings]:
        if cancelled():
            break
        graph = layer_graph(name)
        hear = heard(progress, name)
        largest = max_batch(graph, MEMORY, time_limit=SECONDS[settings], on_progress=hear, cancelled=cancelled)
        rows.append(row_of(name, graph, largest.to_document()))
    return outcome_of(rows, settings, complete=len(rows) == len(NETWORKS[settings]) and not cancelled())


def measured_before(details: Sequence[Mapping[str, Any]]) -> Outcome:
    """The outcome of an earlier search; the baselines are worked out here.

    Args:
        details: of the file that ``benchmarks/max_batch.py`` writes, one entry for each network.
    """
    found = {entry["graph"]: entry for entry in details}
    graphs = {name: layer_graph(name) for name in NETWORKS["full"]}
    rows = [row_of(name, graph, found[graph.name]) for name, graph in graphs.items() if graph.name in found]
    return outcome_of(rows, "full", complete=len(rows) == len(graphs))


def row_of(name: str, graph: Graph, found: Mapping[str, Any]) -> dict[str, Any]:
    """A network beside its baselines.

    Args:
        name: of the network.
        graph: the network at batch 1.
        found: of the largest batch, as `MaxBatch.to_document` has it.
    """
    row = {"network": name, "batch": found["batch"], "upper bound": found["upper_bound"], "proven": found["optimal"]}
    row |= {"published": published_batches(name)["paper_checkmate"], "seconds": found["seconds"]}
    row |= {FREED: found["checkpoint_all_batch"]} | counted_as_published(name, graph)
    return row | freed_after_last_use(graph)


def outcome_of(rows: list[dict[str, Any]], settings: Settings, complete: bool) -> Outcome:
    """The outcome of rows, one for each network."""
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(rows), complete)


def counted_as_published(name: str, graph: Graph) -> dict[str, int | None]:
    """Largest batches of keeping everything and of two of Chen's rules, parameters counted once (right) and twice.

    The peaks of keeping everything and of AP √n are worked out here, with checkpoints that stay to the end as in the
    published program. That of AP greedy at batch 1 is the published program's, which searches its segment size.

    Args:
        name: a network of `remat_explorer.papers.networks`.
        graph: the network at batch 1.

    >>> counted_as_published("VGG19", layer_graph("VGG19"))["Chen"]
    213
    """
    R, S = segment_stages(graph, published_sqrt_n_checkpoints(graph))
    rules = published_batches(name)["baselines"]
    greedy = min((entry["peak_batch1"] for rule, entry in rules.items() if "greedy" in rule), default=None)
    peaks = {KEPT: kept_for_good_peak(graph), CHEN: peak_of_stages(graph, R, S), GREEDY: greedy}
    row: dict[str, int | None] = {}
    for method, peak in peaks.items():
        once, twice = (
            None if peak is None else largest_batch(MEMORY, graph.resident_bytes, peak, times) for times in (1, 2)
        )
        row |= {method: once, f"{method}, {TWICE}": twice}
    return row


def freed_after_last_use(graph: Graph) -> dict[str, int | None]:
    """Largest batches by (11) of Chen's rules where each value is freed after its last use, as in what is found here.

    Args:
        graph: a network at batch 1.

    >>> freed_after_last_use(layer_graph("VGG19"))["linearized greedy, freed"]
    289
    """
    limit = graph.total_cost + float(graph.costs[~graph.is_backward].sum())  # (10)
    row: dict[str, int | None] = {}
    for column, strategy in RULES.items():
        candidates = STRATEGIES[strategy].candidates
        assert candidates is not None
        within = (one.schedule for one in candidates(graph) if one.schedule.cost <= limit)
        peak = min((Plan.of(schedule).peak - graph.resident_bytes for schedule in within), default=None)
        row[column] = None if peak is None else largest_batch(MEMORY, graph.resident_bytes, peak)
    return row


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The batches with their proofs, the best rule of each network, and VGG19's baselines; see `Item.words`."""
    if not rows:
        return "No network was reached before the run was cancelled."
    batches = ", ".join(f"{row['network']} {row['batch']} ({_proof(row)})" for row in rows)
    rules = ", ".join(f"{row['network']} {best_rule(row)}" for row in rows)
    told = [
        f"Within 16 GB at one extra forward pass: {batches}.",
        f"The best of Chen's rules where each value is freed after its last use, as here: {rules}.",
        *(_gains(row) for row in rows if row["network"] in GAINS),
        *(_three_ways(row) for row in rows if row["network"] == "VGG19"),
    ]
    return " ".join(told)


GAINS = ("MobileNet", "U-Net")  # of which the paper says by how much the batch grows


def best_rule(row: Mapping[str, Any]) -> int:
    """The largest batch of Chen's rules where each value is freed after its last use.

    >>> best_rule({"AP √n, freed": 272, "AP greedy, freed": 289, "linearized greedy, freed": None})
    289
    """
    return max(row[rule] or 0 for rule in RULES)


def _gains(row: Mapping[str, Any]) -> str:
    """The published batch over the published baselines, and the one found here over those counted like it."""
    twice, greedy = row[f"{KEPT}, {TWICE}"], row[f"{GREEDY}, {TWICE}"]
    kept, best = row[FREED], best_rule(row)
    published, found = row["published"], row["batch"]
    return (
        f"{row['network']}: the published {published} is {published / twice:.2f} times {twice} with everything kept "
        f"and {published / greedy:.2f} times {greedy} by the published greedy rule, parameters twice; {found} is "
        f"{found / kept:.2f} times {kept} with everything kept and {found / best:.2f} times {best} by the best rule, "
        f"values freed."
    )


def _three_ways(row: Mapping[str, Any]) -> str:
    """What keeping everything and Chen's square root train in each accounting."""
    return (
        f"{row['network']} by (11), with everything kept and by Chen's √n: {row[KEPT]} and {row[CHEN]} with every "
        f"value or checkpoint kept for good; {row[f'{KEPT}, {TWICE}']} and {row[f'{CHEN}, {TWICE}']} with parameters "
        f"and gradients counted twice as well; {row[FREED]} and {row['AP √n, freed']} with each value freed after its "
        f"last use."
    )


def _proof(row: Mapping[str, Any]) -> str:
    return "proven to be the largest" if row["proven"] else f"at most {row['upper bound']}"


def _draw(rows: list[dict[str, Any]]) -> Figure:
    return bars(rows, "network", COLUMNS, "largest batch", logarithmic=True)


ITEM = Item(
    key="checkmate-figure-6",
    paper="Checkmate",
    place="Figure 6",
    title="the largest batch at one extra forward pass",
    notebook="07_larger_inputs.ipynb",
    function="rx.max_batch",
    test="tests/papers/test_exact_items.py",
    published="U-Net 61, MobileNet 1105 (section 6.4); at least 62 on SegNet, 60 on FCN8 and 193 on "
    "ResNet-50 (README of the authors' artifact); VGG19 289, 167 with everything kept, 197 by Chen's rule (Figure 7), "
    "which is √n (talk); 5.1 times common practice and 1.73 times the best baseline on MobileNet (section 6.4); 61 "
    "over 16, which is 3.8 times, on U-Net (section 6.4); 1.73 times the best baseline on U-Net (Figure 6)",
    remark="Checkmate's published batches are lower bounds, of a search of one day (section 6.4), but for VGG19's, "
    "which Figure 7 calls solved to optimality. 167 and 197 are what (11) would give with parameters and gradients "
    "counted twice, as the authors' script counts; so is 1.73. U-Net's 16 is the batch of its articulation points "
    "alone. SegNet's 62 does not fit: one operation alone needs more than 16 GB. ResNet-50's 193 is no optimum: the "
    "published program's own greedy rules train 200 and 248 within the same limit (10), so that the search had not "
    "come to what it contains. The README of the authors' artifact says 'at least' of all three; "
    "FCN8's 60 does not fit on the graph that is made here by the rules of the others. VGG16 is none of section "
    "6.4's networks.",
    compute=figure_6,
    words=words,
)
