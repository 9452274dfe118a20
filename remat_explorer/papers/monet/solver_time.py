"""How soon a solver has a schedule within 5 % and 1 % of the best that is known, of which MONeT's section 5 speaks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remat_explorer.graph import Graph
from remat_explorer.papers.drawing import bars
from remat_explorer.papers.item import Cancelled, Item, Outcome, Settings, Tell
from remat_explorer.papers.monet.networks import NETWORKS, PUBLISHED, choice_graph
from remat_explorer.solvers import Progress, checkpoint_all_peak, solve
from remat_explorer.solvers.monet.selections import default_selection

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SHARE = 0.6  # of plain execution's memory
SECONDS = {"small": 1.5, "full": 60.0}
CLOSE = {"seconds to 5 %": 0.05, "seconds to 1 %": 0.01}
RACES = {  # strategy of each way, and whether implementations are chosen
    "with implementations": ("monet", True),
    "MONeT's problem": ("monet-paper", True),
    "Checkmate, here": ("optimal", False),
    "Checkmate's problem (9)": ("checkmate-ilp", False),
}
WAYS = {"monet": "with implementations", "monet-paper": "MONeT's problem", "checkmate-d": "Checkmate, here"}
WAYS |= {"checkmate-ilp": "Checkmate's problem (9)"}  # names in the benchmark's file


@dataclass
class Race:
    """The costs that a solver reported, with their seconds."""

    told: list[tuple[float, float]] = field(default_factory=list)

    def hear(self, progress: Progress) -> None:
        """Take in a report."""
        if progress.cost is not None:
            self.told.append((progress.seconds, progress.cost))

    @property
    def best(self) -> float:
        """Of the schedules, infinity where there is none."""
        return min((cost for _, cost in self.told), default=math.inf)

    def seconds_to(self, cost: float) -> float | None:
        """When a schedule was known that costs at most ``cost``.

        >>> Race([(1.0, 30.0), (2.0, 26.0)]).seconds_to(27.0)
        2.0
        """
        return next((seconds for seconds, reached in self.told if reached <= cost), None)


def solver_time(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Every solver on each network at one budget, with the same time."""
    rows: list[dict[str, Any]] = []
    for name in NETWORKS[settings]:
        if cancelled():
            break
        progress(f"capturing {name}")
        rows += _of_network(name, choice_graph(name, settings), SECONDS[settings], progress, cancelled)
    return outcome_of(rows, complete=len(rows) == len(RACES) * len(NETWORKS[settings]) and not cancelled())


def _of_network(name: str, graph: Graph, limit: float, progress: Tell, cancelled: Cancelled) -> list[dict[str, Any]]:
    budget, plain = int(SHARE * checkpoint_all_peak(graph)), default_selection(graph).graph
    races: dict[str, Race] = {}
    rows: list[dict[str, Any]] = []
    for way, (strategy, choosing) in RACES.items():
        if cancelled():
            return rows
        progress(f"{name}: {way}")
        races[way] = race = Race()
        problem = graph if choosing else plain
        solution = solve(problem, budget, strategy, limit, on_progress=race.hear, cancelled=cancelled)
        if solution.cost is not None:
            race.told.append((solution.seconds, solution.cost))
        rows.append({"network": name, "way": way, "share": SHARE, "status": str(solution.status), "gap": solution.gap})
    for row in rows:  # both ways of a graph share what is known of it
        best = min(races[way].best for way, (_, choosing) in RACES.items() if choosing == RACES[row["way"]][1])
        row |= {key: races[row["way"]].seconds_to((1 + close) * best) for key, close in CLOSE.items()}
    return rows


def measured_before(details: Mapping[str, Any]) -> Outcome | None:
    """The outcome of an earlier measurement, or None where it holds nothing of it.

    Args:
        details: of the file that ``benchmarks/monet.py`` writes.
    """
    rows: list[dict[str, Any]] = []
    for name in PUBLISHED:
        for race in details.get(f"roofline/{name}", {}).get("figure4", {}).get("races", []):
            if race["way"] in WAYS and race["share"] == SHARE:
                times = {"seconds to 5 %": race.get("within 0.05"), "seconds to 1 %": race.get("within 0.01")}
                row = {"network": name, "way": WAYS[race["way"]], "share": race["share"], "status": race.get("status")}
                rows.append(row | {"gap": race.get("gap")} | times)
    return outcome_of(rows, complete=len({row["network"] for row in rows}) == len(PUBLISHED)) if rows else None


def outcome_of(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network and way."""
    return Outcome(words(rows), tuple(rows), lambda: _draw(rows), complete)


def words(rows: Sequence[Mapping[str, Any]], settings: Settings = "full") -> str:
    """The longest time of each way; see `Item.words`."""
    parts = []
    for way in dict.fromkeys(row["way"] for row in rows):
        mine = [row for row in rows if row["way"] == way]
        times = [row["seconds to 5 %"] for row in mine if row["seconds to 5 %"] is not None]
        reached = f"at most {max(times):.2g} s on {len(times)} of {len(mine)}" if times else f"none of {len(mine)}"
        parts.append(f"{way} {reached}")
    return f"Seconds to a schedule within 5 % of the best known, at {SHARE:.0%} of the memory: {', '.join(parts)}."


def _draw(rows: list[dict[str, Any]]) -> Figure:
    by_network: dict[str, dict[str, Any]] = {}
    for row in rows:
        by_network.setdefault(row["network"], {"network": row["network"]})[row["way"]] = row["seconds to 5 %"]
    columns = {way: way for way in RACES}
    return bars(list(by_network.values()), "network", columns, "seconds to within 5 %", logarithmic=True)


ITEM = Item(
    key="monet-section-5",
    paper="MONeT",
    place="section 5",
    title="solver time to near the optimum",
    notebook="08_operator_implementations.ipynb",
    function="rx.solve",
    test="tests/papers/test_items.py",
    published="after an hour MONeT is within 1 to 2 % of its schedule after a day, and Checkmate has none of "
    "ResNet-50 and GoogLeNet at the tighter budgets (section 5)",
    remark="The paper used Gurobi, and has no figure of this. A bar that is missing was not reached within the limit "
    "of a minute (small settings: 1.5 s). Both ways of one graph share the best schedule known, which is not proven to "
    "be the cheapest.",
    compute=solver_time,
    words=words,
)
