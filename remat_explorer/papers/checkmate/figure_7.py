"""Checkmate's Figure 7: what each stage computes on VGG19 at the largest batch of three methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.documents import pack_rows
from remat_explorer.papers.checkmate.figure_6 import MEMORY, counted_as_published
from remat_explorer.papers.hearing import heard
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.networks import layer_graph
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES, checkpoint_all, max_batch

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NETWORK = "VGG19"
PUBLISHED = {"everything kept": 167, "Chen √n": 197, "Checkmate": 289}
CALLED = {"Checkmate": "the schedule found here"}
SECONDS = {"small": 10.0, "full": 60.0}


def figure_7(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Both baselines' schedules do not depend on the batch; Checkmate's is the one found for the largest batch."""
    graph = layer_graph(NETWORK)
    batches = counted_as_published(NETWORK, graph)
    candidates = STRATEGIES["chen-sqrt-n"].candidates
    assert candidates is not None
    schedules: dict[str, tuple[Schedule, int | None]] = {
        "everything kept": (checkpoint_all(graph), batches["everything kept"]),
        "Chen √n": (next(iter(candidates(graph))).schedule, batches["Chen"]),
    }
    hear = heard(progress, NETWORK)
    largest = max_batch(graph, MEMORY, time_limit=SECONDS[settings], on_progress=hear, cancelled=cancelled)
    if largest.schedule is not None:
        schedules["Checkmate"] = (largest.schedule, largest.batch)
    rows = [
        {"method": method, "batch": batch, "published": PUBLISHED[method], "overhead": schedule.overhead}
        | {"recomputations": schedule.recomputations, "R": pack_rows(schedule.R)}
        for method, (schedule, batch) in schedules.items()
    ]
    return Outcome(words(rows, settings), tuple(rows), lambda: _draw(schedules), complete="Checkmate" in schedules)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings) -> str:
    """The batch and the recomputations of each method; see `Item.words`."""
    named = ((CALLED.get(row["method"], row["method"]), row) for row in rows)
    parts = (f"{name} trains batch {row['batch']} with {row['recomputations']} recomputations" for name, row in named)
    return f"VGG19 in 16 GB: {'; '.join(parts)}."


def _draw(schedules: dict[str, tuple[Schedule, int | None]]) -> Figure:
    from remat_explorer.figures import computation_matrices

    titles = [f"{method}: batch {batch}" for method, (_, batch) in schedules.items()]
    return computation_matrices([schedule for schedule, _ in schedules.values()], titles)


ITEM = Item(
    key="checkmate-figure-7",
    paper="Checkmate",
    place="Figure 7",
    title="VGG19's R at the largest batch of three methods",
    notebook="07_larger_inputs.ipynb",
    function="remat_explorer.figures.computation_matrices",
    test="tests/papers/test_exact_items.py",
    published="everything kept at batch 167, Chen's rule at 197, Checkmate at 289, which is 73 % more and took the "
    "integer program 10 seconds (Figure 7)",
    remark="167 and 197 count parameters twice, see Figure 6. 181 and 213 keep every value or checkpoint to the end, "
    "as the published program does; 289 frees each value after its last use, by which keeping everything trains 222 "
    "and Chen's √n 272. So 289 is 30 % more than 222. There are many schedules of the same batch, so Checkmate's "
    "matrix need not be cell by cell the published one.",
    compute=figure_7,
    words=words,
)
