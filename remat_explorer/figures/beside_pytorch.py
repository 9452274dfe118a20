"""PyTorch's own ways to train in less memory and our schedules on one trade-off figure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remat_explorer.figures.palette import Theme, palette
from remat_explorer.figures.tradeoff import SIZE, Extent, Mark, curve_traces, mark, tradeoff_axes
from remat_explorer.plain_text import in_figure
from remat_explorer.quantities import format_bytes, format_overhead
from remat_explorer.solvers import Frontier

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from remat_explorer.runtime import Measurement, PeerMeasurement

MEASURED = "ours, measured"
HIGHEST = 4.0  # times the dearest schedule of the curve, where the figure ends at most
ALIKE = {"eager": "checkpoint-all"}  # plain PyTorch keeps what that strategy keeps


@dataclass(frozen=True)
class _Spot:
    """Something that ran: bytes, a ratio to computing everything once, and what the hover says, as HTML."""

    name: str
    peak: int
    overhead: float
    text: str


def beside_pytorch(
    frontier: Frontier,
    peers: Sequence[PeerMeasurement],
    measurements: Iterable[Measurement] = (),
    theme: Theme = "light",
) -> Figure:
    """The trade-off of ``frontier``, predicted, with what was measured of PyTorch's ways and of our own schedules.

    Every marker of something that ran stands at its measured peak. Its height is the predicted overhead where there is
    a plan, whose cost is a sum over its operations; checkpoints have no plan, and stand at their measured time over
    eager's, which is noisy on a busy machine. The legend says which it is.

    Args:
        frontier: a sweep of the same model; a profiled graph, so that its costs are seconds of this machine.
        peers: as `remat_explorer.compare_peers` gives them; those that did not run are left out.
        measurements: of solutions of the same model, as `remat_explorer.measure` gives them.
        theme: ground of the figure, "light" or "dark".

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.runtime.peers import PeerMeasurement
    >>> from remat_explorer.solvers import solve
    >>> frontier = Frontier(linear(8), tuple(solve(linear(8), budget) for budget in (4, 6, 8)))
    >>> figure = beside_pytorch(frontier, [PeerMeasurement("eager", peak=10, seconds=1.0, overhead=1.0)])
    >>> [trace.name for trace in figure.data if len(trace.x)]
    ['proven: none below', 'best', 'optimal', 'eager, timed']
    """
    from plotly import graph_objects as go

    spots = [spot for peer in peers if (spot := _of_peer(peer)) is not None]
    spots += [_of_measurement(measurement) for measurement in measurements]
    extent = _with_room(Extent.around(frontier, None, *spots), spots)
    colours, (x, y) = palette(theme), tradeoff_axes(extent, theme)
    figure = go.Figure(curve_traces(frontier, extent, theme), {"xaxis": x, "yaxis": y})
    for name in dict.fromkeys(spot.name for spot in spots):
        group = [spot for spot in spots if spot.name == name]
        places, marker = [extent.place(spot) for spot in group], _marker(name, theme)
        beyond = [_height(spot) > extent.top for spot in group]
        figure.add_scatter(
            name=name,
            x=[x for place in places for x in place[0]],
            y=[y for place in places for y in place[1]],
            mode="markers",
            marker=marker | {"symbol": ["arrow-up" if above else marker["symbol"] for above in beyond]},
            text=[
                spot.text + ("<br>(beyond the upper edge)" if above else "")
                for spot, above in zip(group, beyond, strict=True)
            ],
            hovertemplate="%{text}<extra></extra>",
            cliponaxis=False,
        )
    figure.update_layout(
        title=f"{in_figure(frontier.graph.name)}: PyTorch's ways beside the best schedules",
        height=440,
        margin={"t": 56, "b": 56},
        legend={"title": {"text": "timed, counted: executed"}},
        **colours.look,
        hovermode="closest",
        hoverlabel=colours.hover,
    )
    return figure


def _with_room(extent: Extent, spots: Sequence[_Spot]) -> Extent:
    """Room above the curve for what ran, unless it cost so much that the curve would become flat."""
    highest = max(map(_height, spots), default=0.0)
    return dataclasses.replace(extent, top=min(max(extent.top, highest), HIGHEST * extent.top))


def _height(spot: _Spot) -> float:
    """Overhead in %."""
    return 100 * (spot.overhead - 1)


def _of_peer(peer: PeerMeasurement) -> _Spot | None:
    """A peer at its measured peak; None where it did not run or was not timed."""
    counted, timed = peer.predicted_overhead, peer.overhead
    overhead = timed if counted is None else counted
    if peer.peak is None or overhead is None:
        return None
    return _Spot(
        f"{peer.name}, {'timed' if counted is None else 'cost counted'}",
        peer.peak,
        overhead,
        _said(peer.title, peer.peak, counted, timed),
    )


def _of_measurement(measurement: Measurement) -> _Spot:
    counted, timed = measurement.predicted_overhead, measurement.overhead
    said = f"within {format_bytes(measurement.budget)}"
    return _Spot(f"{MEASURED}, cost counted", measurement.peak, counted, _said(said, measurement.peak, counted, timed))


def _said(title: str, peak: int, counted: float | None, timed: float | None) -> str:
    lines = [f"<b>{title}</b>", f"measured peak {format_bytes(peak)}"]
    lines += [f"cost counted {format_overhead(counted)}"] if counted is not None else []
    lines += [f"timed {format_overhead(timed)}"] if timed is not None else []
    return "<br>".join(lines)


def _marker(name: str, theme: Theme) -> dict[str, object]:
    """A ring around our own points; else the open shape of the strategy of that name, or of the one most alike."""
    way = name.rpartition(", ")[0]
    if way == MEASURED:
        return _open(Mark("circle", palette(theme).measured), SIZE + 6)
    return _open(mark(ALIKE.get(way, way), theme), SIZE + 1)


def _open(look: Mark, size: int) -> dict[str, object]:
    return {"symbol": f"{look.shape}-open", "color": look.colour, "size": size, "line": {"width": 2}}
