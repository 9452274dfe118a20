"""MONeT's Table 1: the least memory of a schedule that costs at most a tenth more than plain execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any

from remat_explorer.figures.palette import palette
from remat_explorer.graph import Graph
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.solvers import checkpoint_all_peak, default_selection, memory_at_overhead
from reproduction.drawing import dressed
from reproduction.item import Cancelled, Item, Outcome, Settings, Tell, progress_listener
from reproduction.monet_networks import NETWORKS, ON_P100, PUBLISHED, choice_graph
from reproduction.p100 import memory_at, pytorch, smallest_run

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


OVERHEAD = 0.10
SECONDS = {"small": 2.0, "full": 240.0}  # of each search
PLAIN, JOINT = "Checkmate", "with implementations"
THEIRS = "measured by the authors, interpolated"
WAYS = {"checkmate-d": PLAIN, "monet": JOINT}  # names in the benchmark's file


def table_1(settings: Settings, progress: Tell, cancelled: Cancelled) -> Outcome:
    """Checkmate's problem on default implementations, and the joint problem, on each network."""
    rows: list[dict[str, Any]] = []
    for name in NETWORKS[settings]:
        if cancelled():
            break
        progress(f"capturing {name}")
        graph = choice_graph(name, settings)
        eager = checkpoint_all_peak(graph)
        for way, problem, strategy in (
            (PLAIN, default_selection(graph).graph, "optimal"),
            (JOINT, graph, "monet"),
        ):
            rows.append(row_of(name, way, eager, _found(problem, strategy, settings, progress, cancelled)))
    return outcome_of(rows, complete=len(rows) == 2 * len(NETWORKS[settings]) and not cancelled())


def _found(graph: Graph, strategy: str, settings: Settings, progress: Tell, cancelled: Cancelled) -> dict[str, Any]:
    hear, limit = progress_listener(progress, f"{graph.name}, {strategy}"), SECONDS[settings]
    least = memory_at_overhead(graph, OVERHEAD, strategy, time_limit=limit, on_progress=hear, cancelled=cancelled)
    return {"peak": least.peak, "lower_bound": least.lower_bound}


def row_of(network: str, way: str, eager: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table.

    Args:
        network, way: where.
        eager: bytes that plain execution needs.
        entry: ``peak`` of the schedule, and ``lower_bound`` of every schedule, in bytes; None where nothing is known.
    """
    peak, proven = entry["peak"], entry["lower_bound"]
    row = {"network": network, "way": way, "eager peak": eager, "peak": peak}
    row |= {"ratio": None if peak is None else peak / eager, "proven": None if proven is None else proven / eager}
    return row | {"published": PUBLISHED.get(network) if way == JOINT else None}


def from_results(details: Mapping[str, Any]) -> Outcome | None:
    """The outcome of an earlier measurement, or None where it holds nothing of the table.

    Args:
        details: of the file that ``benchmarks/monet.py`` writes.
    """
    rows = []
    for name in PUBLISHED:
        entry = details.get(f"roofline/{name}", {}).get("table1")
        if entry is not None:
            ways = entry["ways"]
            rows += [row_of(name, WAYS[way], entry["eager_peak"], ways[way]) for way in WAYS if way in ways]
    return outcome_of(rows, complete=len(rows) == len(WAYS) * len(PUBLISHED)) if rows else None


def outcome_of(rows: list[dict[str, Any]], complete: bool) -> Outcome:
    """The outcome of rows, one for each network and way."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    rows = [*rows, *(measured_row(name) for name in networks if name in ON_P100)]
    return Outcome(words(rows), tuple(rows), lambda: _draw(rows, networks), complete)


def measured_row(network: str) -> dict[str, Any]:
    """What the runs that the authors measured and listed give at 10 %, or their smallest one where none is dearer.

    >>> row = measured_row("resnet50")
    >>> round(row["ratio"], 3), row["smallest run"]
    (0.381, None)
    """
    theirs = ON_P100[network]
    memory, plain = memory_at(theirs, OVERHEAD), pytorch(theirs)["GiB"]
    row = {"network": network, "way": THEIRS, "ratio": None if memory is None else memory / plain}
    least, overhead = smallest_run(theirs)
    smallest = None if memory is not None else {"ratio": least / plain, "overhead": overhead}
    return row | {"smallest run": smallest, "published": PUBLISHED[network]}


def words(rows: Sequence[Mapping[str, Any]], settings: Settings = "full") -> str:
    """The ratio of each network, its bound, and Checkmate's; see `Item.words`."""
    parts = []
    for network in dict.fromkeys(row["network"] for row in rows if row["way"] != THEIRS):
        mine = {row["way"]: row for row in rows if row["network"] == network and row["way"] != THEIRS}
        plain, joint, proven = (
            _ratio(mine, PLAIN, "ratio"),
            _ratio(mine, JOINT, "ratio"),
            _ratio(mine, JOINT, "proven", ROUND_FLOOR),
        )
        eager = next(iter(mine.values()))["eager peak"]
        parts.append(f"{network} {joint} (lower bound {proven}; Checkmate {plain}) of {format_bytes(eager)}")
    told = ", ".join(parts) or "none was reached"
    measured = ", ".join(f"{row['network']} {_measured(row)}" for row in rows if row["way"] == THEIRS)
    first = (
        f"Memory at 10 % overhead relative to PyTorch's, by the authors' measured runs: {measured}. "
        if measured
        else ""
    )
    return f"{first}Memory at 10 % overhead relative to plain execution, P100 roofline: {told}."


def _measured(row: Mapping[str, Any]) -> str:
    if row["ratio"] is not None:
        return f"{row['ratio']:.3f}"
    least = row["smallest run"]
    ratio, overhead = _rounded(least["ratio"], ROUND_CEILING), format_overhead(1 + least["overhead"])
    return f"less than {ratio}, its smallest run, at {overhead}"


def _ratio(rows: Mapping[str, Mapping[str, Any]], way: str, column: str, rounding: str = ROUND_HALF_EVEN) -> str:
    ratio = rows[way][column] if way in rows else None
    return "none" if ratio is None else _rounded(ratio, rounding)


def _rounded(ratio: float, rounding: str) -> str:
    """Three decimals; a bound is rounded to the side on which it stays one."""
    return str(Decimal(f"{ratio:.6f}").quantize(Decimal("0.001"), rounding))


def _draw(rows: list[dict[str, Any]], networks: list[str]) -> Figure:
    """A line for each network: on the left ours, Checkmate's problem and the joint one; on the right the authors'."""
    from plotly.subplots import make_subplots

    colours, known = palette("light"), {(row["network"], row["way"]): row for row in rows}
    titles = ("found here, by published rates", "the authors', on a P100")
    figure: Any = make_subplots(1, 2, shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    marks = {  # column, symbol, colour and side of the number, of each way
        PLAIN: (1, "circle", colours.kept, "middle right"),
        JOINT: (1, "circle", colours.backward, "middle left"),
        "published": (2, "diamond", colours.ink, "bottom center"),
        THEIRS: (2, "circle-open", colours.measured, "top center"),
    }
    ratios: dict[str, dict[str, float]] = {way: {} for way in marks}
    for name in networks:
        for way in (PLAIN, JOINT, THEIRS):
            if (row := known.get((name, way))) and row["ratio"] is not None:
                ratios[way][name] = 100 * row["ratio"]
        if name in PUBLISHED:
            ratios["published"][name] = 100 * PUBLISHED[name]
        ours = [ratios[way][name] for way in (PLAIN, JOINT) if name in ratios[way]]
        line = {"color": colours.both, "width": 6}
        figure.add_scatter(x=ours, y=[name] * len(ours), mode="lines", line=line, showlegend=False, row=1, col=1)
    for way, (column, symbol, colour, side) in marks.items():
        if heights := ratios[way]:
            look = {"symbol": symbol, "size": 12, "color": colour, "line": {"width": 2, "color": colour}}
            figure.add_scatter(
                x=list(heights.values()),
                y=list(heights),
                text=[f"\u00a0{height:.0f} %\u00a0" for height in heights.values()],
                mode="markers+text",
                textposition=side,
                marker=look,
                name="published for MONeT" if way == "published" else way,
                row=1,
                col=column,
            )
    most = max(height for heights in ratios.values() for height in heights.values())
    figure.update_xaxes(range=[0, 1.2 * most], ticksuffix=" %")
    figure.update_xaxes(title_text="memory relative to plain execution", row=1, col=1)
    figure.update_yaxes(autorange="reversed", type="category")
    return dressed(figure).update_layout(margin={"t": 40, "b": 96}, legend={"y": -0.2, "yanchor": "top"})


TABLE_1 = Item(
    key="monet-table-1",
    paper="MONeT",
    place="Table 1",
    title="memory at 10 % overhead",
    notebook="08_operator_implementations.ipynb",
    function="rx.memory_at_overhead",
    test="tests/reproduction/test_items.py",
    published="MONeT's GiB, PyTorch's, and their quotient: ResNet-50 5.7, 15.1, 0.377, GoogLeNet 6.9, 14.9, 0.463, "
    "U-Net 5.2, 14.3, 0.364, VGG-16 5.5, 14.1, 0.390, MobileNet-V2 4.8, 14.5, 0.331 (Table 1); Checkmate's GiB, in "
    "the same order, 8.2, 10.5, 9.1, 9.9, 5.8 (Table 1)",
    remark="First, linear interpolation between the runs that the README of the authors' utsaslab/MONeT lists; of "
    "VGG-16 and MobileNet-V2 none costs 10 %, and MobileNet-V2's published 4.8 GiB lie below every run there. What is "
    "found here on the same costs is in Figure 3. Then predictions by a P100's published rates, without workspace: not "
    "like for like, and with the kinds of implementations of this project, which has others beside the paper's, and no "
    "algorithms of convolutions. By these rates MobileNet-V2 spends its time on moving bytes, and so do "
    "recomputations: a tenth more buys few of them.",
    compute=table_1,
    words=words,
)
