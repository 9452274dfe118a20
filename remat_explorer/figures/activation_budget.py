"""PyTorch's activation memory budget against the peak that was measured: the budget is a share, but not of the peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import Theme, palette
from remat_explorer.quantities import format_bytes

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from remat_explorer.runtime import PeerMeasurement

WAY = "pytorch-budget"
NONE_RAN = "No activation memory budget was measured"


def activation_budget(peers: Sequence[PeerMeasurement], budgets: Sequence[float], theme: Theme = "light") -> Figure:
    """Measured peak for each activation memory budget, beside what it would be if the budget were a share of the peak.

    The dashed line is that reading: resident bytes, and the budget's share of what the largest budget needs beyond
    them. PyTorch does not promise it.

    Args:
        peers: what `remat_explorer.compare_peers` measured; ways other than "pytorch-budget" are left out.
        budgets: the shares that it was given, from 0 to 1, in the same order.
        theme: ground of the figure, "light" or "dark".

    Raises:
        ValueError: if there are not as many budgets as measurements of this way.

    >>> from remat_explorer.runtime.peers import PeerMeasurement
    >>> peers = [PeerMeasurement("pytorch-budget", peak=peak) for peak in (4096, 2048, 3072)]
    >>> figure = activation_budget(peers, (1.0, 0.5, 0.0))
    >>> [(trace.name, *trace.y) for trace in figure.data]
    [('measured peak', 3.0, 2.0, 4.0), ('if it were a share of the peak', 0.0, 4.0)]
    """
    from plotly import graph_objects as go

    measured: dict[str, list[PeerMeasurement]] = {}
    for peer in peers:
        measured.setdefault(peer.name, []).append(peer)
    asked = measured.get(WAY, [])
    ran = sorted((share, peer) for share, peer in zip(budgets, asked, strict=True) if peer.peak is not None)
    colours = palette(theme)
    figure = go.Figure()
    if ran:
        shares, measurements = zip(*ran, strict=True)
        peaks = [peer.peak or 0 for peer in measurements]
        axis = ByteAxis.up_to(max(peaks))
        figure.add_scatter(
            name="measured peak",
            x=shares,
            y=[peak / axis.bytes for peak in peaks],
            mode="lines+markers",
            line={"width": 1.5, "color": colours.measured},
            marker={"size": 9},
            text=[f"budget {share:g}<br>peak {format_bytes(peak)}" for share, peak in zip(shares, peaks, strict=True)],
            hovertemplate="%{text}<extra></extra>",
        )
        resident, (share, whole) = _resident(measurements), (shares[-1], peaks[-1])
        figure.add_scatter(
            name="if it were a share of the peak",
            x=[0.0, share],
            y=[resident / axis.bytes, whole / axis.bytes],
            mode="lines",
            line={"width": 1.5, "dash": "dash", "color": colours.budget},
            hoverinfo="skip",
        )
        figure.update_yaxes(title=f"peak memory ({axis.unit})", rangemode="tozero")
    else:
        figure.add_annotation(text=NONE_RAN, showarrow=False, xref="x domain", yref="y domain", x=0.5, y=0.5)
    figure.update_layout(
        title="PyTorch's activation memory budget and the peak",
        height=360,
        margin={"t": 56, "b": 56},
        **colours.look,
        xaxis={"title": {"text": "activation_memory_budget"}, "gridcolor": colours.grid, "zeroline": False},
        yaxis={"gridcolor": colours.grid, "zeroline": False},
    )
    return figure


def _resident(peers: Sequence[PeerMeasurement]) -> int:
    """Bytes that are there before a step, as the plans' graph knows them; 0 without a plan."""
    return next((peer.plan.graph.resident_bytes for peer in peers if peer.plan is not None), 0)
