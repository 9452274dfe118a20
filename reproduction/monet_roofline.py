"""MONeT's Figures 3 and 6 by a roofline, on captured graphs with this project's implementations.

Figure 3 is overhead against memory, also for Checkmate; Figure 6 what each kind of implementations brings alone, and
all together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from remat_explorer.figures.palette import palette
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_overhead, format_share
from remat_explorer.solvers import (
    ALL,
    NONE,
    Ablation,
    Solution,
    ablation,
    checkpoint_all_peak,
    default_selection,
    fastest_selection,
    kinds_name,
    relative_gap,
    solve,
)
from reproduction.drawing import HEIGHT, dressed
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, name_list, progress_listener
from reproduction.monet_networks import NETWORKS, PUBLISHED, by_network, choice_graph, overhead_curves

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


ACROSS = 3  # panels beside each other
FIGURE_3_ROOFLINE_SHARES: dict[Settings, tuple[float, ...]] = {
    "small": (0.9, 0.8, 0.65),
    "full": (0.8, 0.65, 0.5, 0.4, 0.3),
}
FIGURE_3_ROOFLINE_SECONDS = {"small": 1.5, "full": 30.0}
JOINT, PAPER, PLAIN, FASTEST = "with implementations", "MONeT's problem", "Checkmate-D", "Checkmate-O"
WAYS = {"monet": JOINT, "monet-paper": PAPER, "checkmate-d": PLAIN, "checkmate-o": FASTEST}  # in the benchmark's file


def figure_3_roofline(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Every way at every budget of each network, overhead over plain execution."""
    rows: list[dict[str, Any]] = []
    planned = 0
    for name in NETWORKS[settings]:
        progress(f"capturing {name}")
        graph = choice_graph(name, settings)
        peak, problems = checkpoint_all_peak(graph), problems_of(graph)
        planned += len(FIGURE_3_ROOFLINE_SHARES[settings]) * len(problems)
        for share in FIGURE_3_ROOFLINE_SHARES[settings]:
            solutions: dict[str, Solution] = {}
            for way, (problem, strategy) in problems.items():
                if cancelled():
                    break
                hear = progress_listener(progress, f"{name} at {share:g}, {way}")
                limit = FIGURE_3_ROOFLINE_SECONDS[settings]
                solutions[way] = solve(
                    problem, int(share * peak), strategy, limit, on_progress=hear, cancelled=cancelled
                )
            rows += figure_3_roofline_rows(graph, share, solutions)
    return figure_3_roofline_outcome(rows, complete=len(rows) == planned and not cancelled())


def figure_3_roofline_rows(graph: Graph, share: float, solutions: Mapping[str, Solution]) -> list[dict[str, Any]]:
    """One row for each way at a budget.

    Args:
        graph: with all implementations.
        share: of plain execution's memory.
        solutions: by way. A schedule of default implementations is one of the joint problem as well, so the joint way
            has the cheapest of all.
    """
    costs = {way: solution.cost for way, solution in solutions.items()}
    peaks = {way: solution.peak for way, solution in solutions.items()}
    solved = [way for way, cost in costs.items() if cost is not None]
    if JOINT in solutions and solved:
        best = min(solved, key=lambda way: costs[way] or 0.0)
        costs[JOINT], peaks[JOINT] = costs[best], peaks[best]
    rows: list[dict[str, Any]] = []
    for way, solution in solutions.items():
        cost = costs[way]
        row = {"network": graph.name, "way": way, "share": share, "peak": peaks[way], "status": str(solution.status)}
        row |= {"gap": relative_gap(cost, solution.lower_bound)}
        rows.append(row | {"overhead": None if cost is None else cost / graph.total_cost})
    return rows


def problems_of(graph: Graph) -> dict[str, tuple[Graph, str]]:
    """Graph and strategy of each way; Checkmate-O where it differs from Checkmate-D."""
    plain, fastest = default_selection(graph), fastest_selection(graph)
    problems = {JOINT: (graph, "monet"), PAPER: (graph, "monet-paper"), PLAIN: (plain.graph, "optimal")}
    return problems if fastest.codes == plain.codes else problems | {FASTEST: (fastest.graph, "optimal")}


def figure_3_roofline_from_results(details: Mapping[str, Any]) -> Outcome | None:
    """The outcome of an earlier measurement, or None where it holds nothing of the figure.

    Args:
        details: of the file that ``benchmarks/monet.py`` writes.
    """
    rows: list[dict[str, Any]] = []
    for name in PUBLISHED:
        for point in details.get(f"roofline/{name}", {}).get("figure3", {}).get("points", []):
            if point["way"] in WAYS:
                above = point.get("overhead")  # the benchmark writes what comes on top
                row = {"network": name, "way": WAYS[point["way"]], "share": point["share"]}
                row |= {"overhead": None if above is None else 1 + above}
                rows.append(row | {key: point.get(key) for key in ("peak", "gap", "status")})
    return (
        figure_3_roofline_outcome(rows, complete=len({row["network"] for row in rows}) == len(PUBLISHED))
        if rows
        else None
    )


def figure_3_roofline_outcome(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network, way and budget."""
    outcome = overhead_curves(rows, "way", figure_3_roofline_words, complete)
    return replace(outcome, draw=lambda: _draw_figure_3(outcome.rows))


def _draw_figure_3(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """A panel for each network, three in a row, all on the same axes; an arrow says what lies above them."""
    from plotly.subplots import make_subplots

    colours, networks = palette("light"), list(dict.fromkeys(row["network"] for row in rows))
    shades = {PAPER: colours.measured, PLAIN: colours.kept, FASTEST: colours.cursor, JOINT: colours.backward}
    looks: dict[str, Any] = {
        way: {"line": {"color": shade, "width": 2.5}, "marker": {"size": 8}} for way, shade in shades.items()
    }
    looks[PAPER]["marker"] = {"size": 14, "symbol": "circle-open"}  # seen around that of another way
    ours = [row["overhead in %"] for row in rows if row["way"] != PAPER and row["overhead in %"] is not None]
    top = 1.15 * max(ours, default=1.0)
    down = -(-len(networks) // ACROSS)
    figure: Any = make_subplots(
        down,
        min(ACROSS, len(networks)),
        subplot_titles=networks,
        shared_xaxes=cast("Any", "all"),  # which its annotations do not know
        shared_yaxes=cast("Any", "all"),
        horizontal_spacing=0.04,
        vertical_spacing=0.14,
    )
    for number, name in enumerate(networks):
        place = {"row": number // ACROSS + 1, "col": number % ACROSS + 1}
        for way, shade in shades.items():
            known = [row for row in rows if row["network"] == name and row["way"] == way]
            mine = sorted((row for row in known if row["overhead in %"] is not None), key=lambda row: row["share"])
            inside = [row for row in mine if row["overhead in %"] <= top]
            points = {"x": [row["memory in %"] for row in inside], "y": [row["overhead in %"] for row in inside]}
            figure.add_scatter(**points, **looks[way], mode="lines+markers", showlegend=False, **place)
            above = [row for row in mine if row not in inside]
            if above:
                note = {"x": 0.98, "y": 0.98, "xref": "x domain", "yref": "y domain", "showarrow": False}
                said = (f"\u2191 {row['overhead in %']:+.0f} % at {row['memory in %']:.0f} %" for row in above)
                text = "<br>".join(said)
                figure.add_annotation(text=text, font={"color": shade}, align="right", yanchor="top", **note, **place)
    for way in dict.fromkeys(row["way"] for row in rows if row["overhead in %"] is not None):
        figure.add_scatter(x=[None], y=[None], mode="lines+markers", **looks[way], name=way)
    figure.update_yaxes(range=[min([0.0, *ours]) - 2, top], ticksuffix=" %")
    figure.update_xaxes(ticksuffix=" %", dtick=20, showticklabels=True)
    figure.update_xaxes(title_text="memory (share of plain execution)", row=down, col=min(2, len(networks)))
    dressed(figure, height=540 if down > 1 else HEIGHT)
    figure.update_yaxes(zeroline=True, zerolinecolor=colours.budget)
    figure.update_yaxes(title_text="overhead", col=1)
    return figure.update_layout(margin={"b": 90}, legend={"y": -0.17, "yanchor": "top"})


def figure_3_roofline_words(rows: Sequence[Mapping[str, Any]], settings: Settings = "full") -> str:
    """The tightest budget at which both ways have a schedule, network by network; see `Item.words`."""
    lost = [f"{row['network']} at {row['share']:.0%}" for row in rows if row["way"] == JOINT and _lost(row, rows)]
    told = f" The search with implementations ended above Checkmate's at {name_list(lost)}." if lost else ""
    return by_network(rows, _figure_3_roofline_sentence) + told


def _lost(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a schedule without choices, which the joint problem has as well, is cheaper than the joint one."""
    here = [other for other in rows if (other["network"], other["share"]) == (row["network"], row["share"])]
    plain = [other["overhead"] for other in here if other["way"] in (PLAIN, FASTEST) and other["overhead"] is not None]
    return bool(plain) and (row["overhead"] is None or row["overhead"] > min(plain))


def _figure_3_roofline_sentence(network: str, rows: Sequence[Mapping[str, Any]]) -> str:
    by_way: dict[str, dict[float, Mapping[str, Any]]] = {}
    for row in rows:
        if row["overhead"] is not None:
            by_way.setdefault(row["way"], {})[row["share"]] = row
    joint, plain = by_way.get(JOINT, {}), by_way.get(PLAIN, {})
    common = sorted(joint.keys() & plain.keys())
    if not common:
        return f"{network}: no budget at which both ways have a schedule."
    share = common[0]
    least = (
        f"; the smallest share with a schedule is {min(joint):.0%} with implementations, {min(plain):.0%} for Checkmate"
    )
    mine, theirs = _figure_3_roofline_told(joint[share]), _figure_3_roofline_told(plain[share])
    return (
        f"{network} at {share:.0%} of plain execution's memory: {mine} with implementations, "
        f"{theirs} for Checkmate{least if min(joint) < min(plain) else ''}."
    )


def _figure_3_roofline_told(row: Mapping[str, Any]) -> str:
    """Overhead and gap of a schedule, such as "+12.8 % (gap 2.7 %)"."""
    gap = "no bound" if row["gap"] is None else f"gap {format_share(row['gap'])}"
    return f"{format_overhead(row['overhead'])} ({gap})"


FIGURE_3_ROOFLINE = Item(
    key="monet-figure-3-by-a-roofline",
    paper="MONeT",
    place="Figure 3, by a roofline",
    title="overhead against memory with this project's implementations",
    notebook="08_operator_implementations.ipynb",
    function="rx.solve",
    test="tests/reproduction/test_items.py",
    published="a third of PyTorch's memory at 9 to 16 % overhead (Figure 3); 1.2 to 1.8 times less memory than "
    "Checkmate at 10 % (Table 1); VGG-16 in 5.5 GiB, Checkmate in 7 GiB and not less (section 5)",
    remark="Predictions by a P100's published rates, without workspace, where the paper measured. The joint problem "
    "may also run gradients again, which MONeT's own cannot. Where the search with implementations ended above "
    "Checkmate's, it had too little time: every schedule of Checkmate's is one of the joint problem as well.",
    compute=figure_3_roofline,
    words=figure_3_roofline_words,
)


FIGURE_6_ROOFLINE_SHARES: dict[Settings, tuple[float, ...]] = {"small": (0.8, 0.65), "full": (0.8, 0.65, 0.5, 0.4, 0.3)}
FIGURE_6_ROOFLINE_SECONDS = {"small": 1.0, "full": 20.0}
KINDS: dict[Settings, tuple[str, ...] | None] = {"small": ("masks", "output-activated", "chunks"), "full": None}


def figure_6_roofline(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """No kind, each alone, and all together, at every budget."""
    rows: list[dict[str, Any]] = []
    for name in NETWORKS[settings]:
        if cancelled():
            break
        progress(f"capturing {name}")
        graph = choice_graph(name, settings)
        peak = checkpoint_all_peak(graph)
        table = ablation(
            graph,
            [int(share * peak) for share in FIGURE_6_ROOFLINE_SHARES[settings]],
            KINDS[settings],
            time_limit=FIGURE_6_ROOFLINE_SECONDS[settings],
            on_progress=lambda done, name=name: progress(f"{name}: {done}"),
            cancelled=cancelled,
        )
        rows += figure_6_roofline_rows(table)
    complete = {row["network"] for row in rows} == set(NETWORKS[settings]) and not cancelled()
    return figure_6_roofline_outcome(rows, complete)


def figure_6_roofline_rows(ablation: Ablation) -> list[dict[str, Any]]:
    """One row for each set of kinds and budget that was reached."""
    graph, peak = ablation.graph, checkpoint_all_peak(ablation.graph)
    rows: list[dict[str, Any]] = []
    for (kinds, budget), solution in ablation.solutions.items():
        overhead = None if solution.cost is None else solution.cost / graph.total_cost
        row = {"network": graph.name, "group": kinds_name(kinds, ablation.kinds), "share": round(budget / peak, 3)}
        row |= {"overhead": overhead, "peak": solution.peak, "gap": solution.gap}
        rows.append(row | {"status": str(solution.status)})
    return rows


def figure_6_roofline_from_results(details: Mapping[str, Any]) -> Outcome | None:
    """The outcome of an earlier measurement, or None where it holds nothing of the figure.

    Args:
        details: of the file that ``benchmarks/monet.py`` writes.
    """
    rows: list[dict[str, Any]] = []
    for name in PUBLISHED:
        for point in details.get(f"roofline/{name}", {}).get("figure6", {}).get("points", []):
            for group, entry in point["groups"].items():
                above = entry.get("overhead")  # the benchmark writes what comes on top
                row = {"network": name, "group": group, "share": point["share"]}
                row |= {"overhead": None if above is None else 1 + above}
                rows.append(row | {key: entry.get(key) for key in ("peak", "gap", "status")})
    return (
        figure_6_roofline_outcome(rows, complete=len({row["network"] for row in rows}) == len(PUBLISHED))
        if rows
        else None
    )


def figure_6_roofline_outcome(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network, group and budget."""
    return overhead_curves(rows, "group", figure_6_roofline_words, complete)


def figure_6_roofline_words(rows: Sequence[Mapping[str, Any]], settings: Settings = "full") -> str:
    """No kind, the best one, and all together where they bring most, network by network; see `Item.words`."""
    return by_network(rows, _figure_6_roofline_sentence)


def _figure_6_roofline_sentence(network: str, rows: Sequence[Mapping[str, Any]]) -> str:
    by_share: dict[float, dict[str, float]] = {}
    for row in rows:
        overhead = math.inf if row["overhead"] is None else row["overhead"]
        by_share.setdefault(row["share"], {})[row["group"]] = overhead
    told = {share: overheads for share, overheads in by_share.items() if overheads.get(ALL, math.inf) < math.inf}
    if not told:
        return f"{network}: no schedule at these budgets."
    share = max(told, key=lambda share: told[share].get(NONE, math.inf) - told[share][ALL])
    alone = {group: cost for group, cost in told[share].items() if group not in (NONE, ALL)}
    best = min(alone, key=lambda group: alone[group], default=NONE)
    words = [f"{group} {_figure_6_roofline_told(told[share].get(group, math.inf))}" for group in (NONE, best, ALL)]
    if alone and math.isinf(alone[best]):
        words[1] = "no single kind has one"
    gap = next(row["gap"] for row in rows if (row["share"], row["group"]) == (share, ALL))
    words[-1] += " (no bound)" if gap is None else f" (gap {format_share(gap)})"
    return f"{network} at {share:.0%} of plain execution's memory: {', '.join(words)}."


def _figure_6_roofline_told(overhead: float) -> str:
    return "no schedule" if math.isinf(overhead) else format_overhead(overhead)


FIGURE_6_ROOFLINE = Item(
    key="monet-figure-6-by-a-roofline",
    paper="MONeT",
    place="Figure 6, by a roofline",
    title="ablation of this project's kinds of implementations",
    notebook="08_operator_implementations.ipynb",
    function="rx.ablation",
    test="tests/reproduction/test_items.py",
    published="without any choice it is generally slower than with one kind (appendix D); algorithms of convolutions "
    "and output-activated ones both matter, but MobileNet-V2 gains little from algorithms (appendix D); for "
    "memory-intensive networks intermediate-activated ones matter more (section 5); all together cost least at every "
    "memory (appendix D)",
    remark="By the kinds of implementations here, which are not the paper's groups. One of its groups is missing, "
    "algorithms of convolutions, since published rates cannot tell them apart. The memory is the one at which all "
    "kinds bring most; of single kinds the best is named.",
    compute=figure_6_roofline,
    words=figure_6_roofline_words,
)
