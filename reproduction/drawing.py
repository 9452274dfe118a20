"""What the items' figures share: the house's look, bars, and several figures side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remat_explorer.figures.palette import palette

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


HEIGHT = 420


def bars(
    rows: Sequence[Mapping[str, Any]], x: str, columns: Mapping[str, str], y_title: str, logarithmic: bool = False
) -> Figure:
    """A group of bars for each row; on a logarithmic axis, which has no zero for a bar to begin at, a group of points.

    Args:
        rows: the data; None leaves a bar out.
        x: the column that names a row.
        columns: names of bars by the column that has their heights.
        y_title: what the heights are, with the unit.
        logarithmic: whether the axis is; it then covers whole powers of ten.

    >>> [bar.name for bar in bars([{"n": "a", "c": 2}], "n", {"c": "cost", "d": "time"}, "cost").data]
    ['cost', 'time (none)']
    >>> tuple(bars([{"n": "a", "c": 0.012}], "n", {"c": "cost"}, "cost", logarithmic=True).layout.yaxis.range)
    (-2, -1)
    """
    from plotly import graph_objects as go

    colours = palette("light")
    names = [str(row[x]) for row in rows]
    figure = go.Figure()
    all_known: list[float] = []
    for i, (column, name) in enumerate(columns.items()):
        heights = [row.get(column) for row in rows]
        known = [height for height in heights if height is not None]
        shared: dict[str, Any] = {
            "x": names,
            "y": heights,
            "text": ["" if height is None else _label(height) for height in heights],
            "name": name if known else f"{name} (none)",
            "marker": {"color": colours.hues[i % len(colours.hues)]},
        }
        if logarithmic:
            all_known += [height for height in known if height > 0]
            place = "bottom center" if i % 2 else "top center"  # numbers of neighbours do not touch
            figure.add_scatter(**shared, mode="markers+text", textposition=place, offsetgroup=column)
            figure.update_traces(marker_size=12, selector={"offsetgroup": column})
        else:
            figure.add_bar(**shared, textposition="outside")
    figure.update_xaxes(type="category")
    figure.update_yaxes(title_text=y_title, type="log" if logarithmic else "linear")
    figure.update_layout(barmode="group", scattermode="group")
    if all_known:
        lowest = math.floor(math.log10(min(all_known)))
        highest = math.ceil(math.log10(max(all_known)))
        figure.update_yaxes(range=[lowest, max(highest, lowest + 1)], dtick=1)
    return dressed(figure)


def _label(height: float) -> str:
    """A number beside its bar: three digits, or all of them before the point.

    >>> _label(0.0136), _label(1231)
    ('0.0136', '1,231')
    """
    return f"{height:,.0f}" if abs(height) >= 1000 else f"{height:.3g}"


def dressed(figure: Figure, title: str = "", height: int = HEIGHT) -> Figure:
    """The figure with the house's ground, grid and margins."""
    colours = palette("light")
    figure.update_xaxes(gridcolor=colours.grid, zeroline=False)
    figure.update_yaxes(gridcolor=colours.grid, zeroline=False)
    figure.update_layout(
        title=title or None,
        height=height,
        margin={"t": 56 if title else 40, "b": 56},
        **colours.look,
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"} if not title else {},
    )
    return figure


def side_by_side(figures: Sequence[Figure], titles: Sequence[str]) -> Figure:
    """Figures of the same kind in one row, each with its own axes; a legend entry or a title of all axes stands once.

    Args:
        figures: at least one; a single one is returned as it is.
        titles: of the panels, as many.
    """
    from plotly.subplots import make_subplots

    if len(figures) == 1:
        return figures[0]
    joined = make_subplots(rows=1, cols=len(figures), subplot_titles=list(titles), horizontal_spacing=0.06)
    named: set[str] = set()
    for column, figure in enumerate(figures, 1):
        traces: Any = figure.data
        for trace in traces:
            name = str(trace.name or "")
            if trace.visible is not False:
                trace.update(legendgroup=name, showlegend=trace.showlegend is not False and name not in named)
                named.add(name)
            joined.add_trace(trace, row=1, col=column)
        joined.update_xaxes(_axis(figure.layout.xaxis), row=1, col=column)
        joined.update_yaxes(_axis(figure.layout.yaxis), row=1, col=column)
    _say_once(joined, len(figures))
    joined.update_layout(barmode=figures[0].layout.barmode)
    return dressed(joined).update_layout(legend={"y": -0.2, "yanchor": "top"})


def _say_once(joined: Figure, panels: int) -> None:
    """Where the axes of all panels have the same title, the first keeps that upwards, the middle one that across."""
    columns = set(range(1, panels + 1))
    if len({axis.title.text for axis in joined.select_yaxes()}) == 1:
        for column in columns - {1}:
            joined.update_yaxes(title_text=None, row=1, col=column)
    if panels > 2 and len({axis.title.text for axis in joined.select_xaxes()}) == 1:
        for column in columns - {panels // 2 + 1}:
            joined.update_xaxes(title_text=None, row=1, col=column)


def text_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Figure:
    """A table as a figure.

    Args:
        rows: the data.
        columns: heads by column.

    >>> text_table([{"n": 3}], {"n": "operations"}).data[0].header["values"]
    ('operations',)
    """
    from plotly import graph_objects as go

    colours = palette("light")
    cells = [["" if row.get(column) is None else str(row[column]) for row in rows] for column in columns]
    head = {"values": list(columns.values()), "fill_color": colours.grid, "align": "left"}
    body = {"values": cells, "fill_color": colours.ground, "align": "left", "height": 24}
    return dressed(go.Figure(go.Table(header=head, cells=body)), height=120 + 26 * len(rows))


def _axis(axis: Any) -> dict[str, Any]:
    """What an axis looks like, without where it is anchored."""
    kept = axis.to_plotly_json()
    return {name: entry for name, entry in kept.items() if name not in ("anchor", "domain", "matches")}
