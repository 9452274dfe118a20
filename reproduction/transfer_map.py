"""Where recomputing, sending or both is best: what `benchmarks/offload_map.py` found, in cells and as a map.

A cell is a network on a device within a budget, at a bandwidth. A plan counts at all higher bandwidths, too, and a
bound at all lower ones. A choice that is within half a per cent of a step of the best plan counts as good enough.
Beside it, the three engines of a plan as lanes, one picture for each bandwidth.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import remat_explorer as rx
from remat_explorer.figures import Theme, player
from remat_explorer.figures.palette import Palette, palette
from remat_explorer.plain_text import in_figure
from remat_explorer.plan import Compute

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "offload_map.json"
NOTHING = 1e-6  # per cent that only rounding explains
WORTH = 0.5  # per cent of a step: what saves less counts as no better
RECOMPUTE, SEND, BOTH, EITHER = "recompute", "send", "both", "either"
WORDS = {
    RECOMPUTE: "recomputing alone is as good",
    EITHER: "either alone is as good",
    BOTH: "both together are best",
    SEND: "sending alone is as good",
}
LINKS = {8: "PCIe 3 x8", 16: "PCIe 3", 32: "PCIe 4", 64: "PCIe 5", 128: "PCIe 6", 450: "NVLink-C2C"}


@dataclass(frozen=True)
class Cell:
    """What the choices take at one bandwidth, in per cent over computing everything once; None where there is no plan.

    Attributes:
        network, device, f, bandwidth: where; GB/s.
        recompute, send, both: the best plans known; both is never above either.
        recompute_bound, send_bound, bound: no plan of that kind takes less; bound is that of both.
    """

    network: str
    device: str
    f: float
    bandwidth: float
    recompute: float | None
    send: float | None
    both: float | None
    recompute_bound: float
    send_bound: float
    bound: float

    @property
    def choice(self) -> str:
        """Which choice suffices: a key of `WORDS`.

        >>> Cell("unet", "A100", 0.2, 32, 8.9, 93.1, 5.6, 8.6, 80.0, 0.9).choice
        'both'
        """
        alone = self._suffices(self.recompute), self._suffices(self.send)
        return {(True, True): EITHER, (True, False): RECOMPUTE, (False, True): SEND, (False, False): BOTH}[alone]

    @property
    def proven(self) -> bool:
        """Whether bounds prove it: what suffices does, and what does not cannot.

        >>> Cell("unet", "A100", 0.2, 32, 8.9, 93.1, 5.6, 8.6, 80.0, 0.9).proven
        True
        """
        if self.both is None:
            return False
        misses = {RECOMPUTE: (self.send_bound,), SEND: (self.recompute_bound,), EITHER: ()}
        cannot = misses.get(self.choice, (self.recompute_bound, self.send_bound))
        near = self.choice == BOTH or self.both - self.bound <= WORTH
        return near and all(bound - self.both > WORTH for bound in cannot)

    @property
    def saved(self) -> tuple[float, float] | None:
        """What the link saves of a step, in per cent of computing once: at least, and at most; None without a schedule.

        >>> saved = Cell("unet", "A100", 0.2, 32, 8.9, 93.1, 5.6, 8.6, 80.0, 0.9).saved
        >>> [round(part, 1) for part in saved]
        [3.0, 8.0]
        """
        if self.recompute is None or self.both is None:
            return None
        return max(0.0, self.recompute_bound - self.both), self.recompute - self.bound

    def _suffices(self, overhead: float | None) -> bool:
        return overhead is not None and self.both is not None and overhead - self.both <= WORTH


def cells_of(details: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """The cells of the benchmark's rows, with plans and bounds carried from one bandwidth to another."""
    cells = []
    for row in details:
        recompute, best_send, best = _over(row["recompute"]), None, _over(row["recompute"])
        plans = []
        for cell in row["cells"]:  # bandwidths ascend
            best_send = _least(best_send, _over(cell["send"]["overhead"]))
            best = _least(best, best_send, _over(cell["both"]["overhead"]))
            if best is not None and best <= NOTHING:
                best_send = best  # what takes no longer than computing once computes nothing again
            plans.append((best_send, best))
        for number, (cell, (send, both)) in enumerate(zip(row["cells"], plans, strict=True)):
            later = row["cells"][number:]
            send_bound = max(max(_bound(one["send"], "bound"), _bound(one, "excess")) for one in later)
            bound = max(_bound(one["both"], "bound") for one in later)
            where = (row["network"], row["device"], row["f"], cell["bandwidth"])
            bounds = (_bound(row, "recompute_bound"), max(send_bound, bound), bound)
            cells.append(Cell(*where, recompute, send, both, *bounds))
    return cells


def kept_cells() -> list[Cell]:
    """The cells of results/offload_map.json."""
    return cells_of(json.loads(RESULTS.read_text(encoding="utf-8"))["details"])


def summary(cells: Sequence[Cell]) -> str:
    """How often each choice suffices, how often that is proven, and what the link saves."""
    lines = [f"{len(cells)} cells, of {len({(c.network, c.device, c.f) for c in cells})} graphs and budgets"]
    count, proven = Counter(c.choice for c in cells), Counter(c.choice for c in cells if c.proven)
    lines += [f"{WORDS[choice]}: {count[choice]}, proven {proven[choice]}" for choice in WORDS if count[choice]]
    for bandwidth in sorted({c.bandwidth for c in cells}):
        here = [c for c in cells if c.bandwidth == bandwidth]
        saved = sorted(c.saved[0] for c in here if c.saved is not None)
        alone = sum(c.choice in (SEND, EITHER) for c in here)
        middle = saved[len(saved) // 2] if saved else 0.0
        lines.append(
            f"{bandwidth:g} GB/s ({LINKS[int(bandwidth)]}): the link saves at least {middle:.1f} % of a step in the "
            f"median, {saved[-1]:.1f} % at most; sending alone suffices in {alone} of {len(here)}"
        )
    return "\n".join(lines)


def transfer_map(cells: Sequence[Cell], f: float = 0.2, theme: Theme = "light") -> Figure:
    """The map: a panel for each device, a row for each network, a column for each bandwidth.

    A cell says what the best plan costs over computing everything once, in per cent, and its colour which choice is
    needed for that. "?" stands where bounds do not prove the colour. The first column is a GPU without a link.

    Args:
        cells: as `cells_of` gives them.
        f: which budget.
        theme: ground of the figure.
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    colours = palette(theme)
    shades = _shades(colours)
    mine = [cell for cell in cells if cell.f == f]
    devices = list(dict.fromkeys(cell.device for cell in mine))
    networks = list(dict.fromkeys(cell.network for cell in mine))
    bandwidths = sorted({cell.bandwidth for cell in mine})
    across = ["none", *(f"{bandwidth:g}" for bandwidth in bandwidths)]
    columns = min(2, len(devices))
    figure = make_subplots(
        rows=-(-len(devices) // columns), cols=columns, subplot_titles=devices, shared_yaxes=True,
        horizontal_spacing=0.03, vertical_spacing=0.11,
    )  # fmt: skip
    kinds = list(shades)
    scale = [(i / len(kinds) + step, shades[kind]) for i, kind in enumerate(kinds) for step in (0, 1 / len(kinds))]
    for number, device in enumerate(devices):
        z, text, tips = [], [], []
        for network in networks:
            known = {cell.bandwidth: cell for cell in mine if (cell.device, cell.network) == (device, network)}
            line = [known.get(bandwidth) for bandwidth in bandwidths]
            first = next((cell for cell in line if cell), None)
            z.append([0 if first else None, *(None if cell is None else kinds.index(cell.choice) for cell in line)])
            text.append(["" if first is None else _percent(first.recompute), *map(_said, line)])
            tips.append(["without a link", *map(_tip, line)])
        row, column = 1 + number // columns, 1 + number % columns
        figure.add_trace(
            go.Heatmap(
                z=z, x=across, y=networks, text=text, texttemplate="%{text}", customdata=tips, colorscale=scale,
                zmin=-0.5, zmax=len(kinds) - 0.5, showscale=False, xgap=2, ygap=2,
                hovertemplate="%{y}, %{x} GB/s<br>%{customdata}<extra></extra>", textfont={"color": "#FFFFFF"},
            ),
            row=row, col=column,
        )  # fmt: skip
        figure.update_xaxes(type="category", showgrid=False, row=row, col=column)
        figure.update_yaxes(type="category", showgrid=False, autorange="reversed", row=row, col=column)
    figure.update_xaxes(title_text="bandwidth each way, GB/s", row=-(-len(devices) // columns))
    key = "   ".join(f"<span style='color:{shades[kind]}'>■</span> {WORDS[kind]}" for kind in kinds)
    figure.add_annotation(
        text=f"{key}   ? not proven", x=0, y=1.045, xref="paper", yref="paper", xanchor="left", yanchor="bottom",
        showarrow=False,
    )  # fmt: skip
    figure.update_layout(
        title={"text": f"Over computing everything once (%), f = {f:g}", "y": 0.97}, height=860, width=980,
        margin={"t": 120, "b": 60, "l": 110, "r": 20}, **colours.look, hoverlabel=colours.hover,
    )  # fmt: skip
    return figure


def lanes_by_bandwidth(plans: Mapping[str, rx.TransferSolution], theme: Theme = "light") -> Figure:
    """What each engine does and what is in memory, for one bandwidth after another, with a slider; it needs no kernel.

    Args:
        plans: solutions with a plan, by what the slider says; of one graph and one budget.
        theme: ground of the figure.

    >>> transfers = rx.Transfers(out=1.0, back=1.0)
    >>> solution = rx.solve(rx.linear(2), budget=4, strategy="offload", transfers=transfers)
    >>> [frame.name for frame in lanes_by_bandwidth({"1": solution}).frames]
    ['1']
    """
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    colours = palette(theme)
    longest = max(solution.cost or 0.0 for solution in plans.values())
    frames = [
        go.Frame(
            name=name, data=_lanes(solution, colours), layout={"title": {"text": _title(name, solution)}}, traces=[0, 1]
        )
        for name, solution in plans.items()
    ]
    first = next(iter(plans.values()))
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.45, 0.55], vertical_spacing=0.08)
    figure.add_traces(_lanes(first, colours))
    figure.frames = frames
    line = {"color": colours.budget, "dash": "dash"}
    figure.add_shape(type="line", x0=0, x1=1.02 * longest, y0=first.budget, y1=first.budget, line=line, row=2, col=1)
    figure.add_annotation(
        x=0, xref="x2", y=first.budget, yref="y2", text="budget", showarrow=False, xanchor="left", yanchor="bottom"
    )
    figure.update_xaxes(range=[0, 1.02 * longest], gridcolor=colours.grid, zeroline=False)
    figure.update_xaxes(title_text="time, in units of cost", row=2, col=1)
    lanes = ["back to the GPU", "out to the host", "compute"]
    figure.update_yaxes(categoryorder="array", categoryarray=lanes, row=1, col=1)
    figure.update_yaxes(title_text="bytes on the GPU", range=[0, 1.25 * first.budget], row=2, col=1)
    figure.update_layout(
        title={"text": _title(next(iter(plans)), first)}, height=520, showlegend=False, barmode="overlay",
        margin={"t": 60, "b": 110, "l": 120}, **colours.look, hoverlabel=colours.hover,
        **player(list(plans), "bandwidth ", 1200, -0.45, colours),
    )  # fmt: skip
    figure.update_yaxes(automargin=True)
    return figure.update_layout(meta={"stills": [next(iter(plans)), list(plans)[-1]], "still height": 360})


def _lanes(solution: rx.TransferSolution, colours: Palette) -> list[Any]:
    """Bars of the three engines, and memory over time."""
    from plotly import graph_objects as go

    plan = solution.plan
    if plan is None:
        return [go.Bar(), go.Scatter()]
    time, shades = plan.timeline, {"Send": _shades(colours)[SEND], "Fetch": _shades(colours)[SEND]}
    bars: list[tuple[str, float, float, str, str]] = []
    for i, one in enumerate(plan.statements):
        start, length = float(time.start[i]), float(time.end[i] - time.start[i])
        if isinstance(one, Compute):
            first = {"forward": colours.forward, "backward": colours.backward}[
                plan.graph.operations[one.operation].phase
            ]
            bars.append(("compute", start, length, first if one.first else colours.recompute, plan.text(one)))
        elif type(one).__name__ in shades:
            lane = "out to the host" if type(one).__name__ == "Send" else "back to the GPU"
            bars.append((lane, start, length, shades[type(one).__name__], plan.text(one)))
    y, base, x, shade, text = map(list, zip(*bars, strict=True))
    text = [in_figure(line) for line in text]
    marker = {"color": shade, "line": {"color": colours.ground, "width": 1}}
    device = [i for i, one in enumerate(plan.statements) if type(one).__name__ not in ("Send", "Drop")]
    steps = go.Scatter(  # in the order of the list, which decides the bytes
        x=np.maximum.accumulate(time.start[device]), y=time.during[device], mode="lines", hoverinfo="skip",
        line={"shape": "hv", "color": colours.ink}, xaxis="x2", yaxis="y2",
    )  # fmt: skip
    bar = go.Bar(x=x, y=y, base=base, orientation="h", marker=marker, hovertext=text, hoverinfo="text")
    return [bar.update(xaxis="x", yaxis="y"), steps]


def _title(name: str, solution: rx.TransferSolution) -> str:
    """One line about a solution."""
    plan = solution.plan
    if plan is None:
        return f"bandwidth {name}: no plan"
    again = sum(isinstance(one, Compute) and not one.first for one in plan.statements)
    sent = sum(type(one).__name__ == "Send" for one in plan.statements)
    return f"bandwidth {name}: takes {plan.makespan:g}, computes {again} again, sends {sent}"


def _shades(colours: Palette) -> dict[str, str]:
    return {RECOMPUTE: colours.recompute, EITHER: "#6B6F76", BOTH: colours.hues[1], SEND: colours.hues[4]}


def _over(overhead: float | None) -> float | None:
    return None if overhead is None else 100 * max(0.0, overhead - 1)


def _bound(row: Mapping[str, Any], key: str) -> float:
    return 100 * max(0.0, (row.get(key) or 1.0) - 1)


def _least(*overheads: float | None) -> float | None:
    return min((overhead for overhead in overheads if overhead is not None), default=None)


def _percent(overhead: float | None) -> str:
    return "none" if overhead is None else f"{overhead:.1f}"


def _said(cell: Cell | None) -> str:
    return "" if cell is None else _percent(cell.both) + ("" if cell.proven else "?")


def _tip(cell: Cell | None) -> str:
    if cell is None:
        return ""
    rows = (("recomputing", cell.recompute), ("sending", cell.send), ("both", cell.both), ("at least", cell.bound))
    return f"{WORDS[cell.choice]}<br>" + ", ".join(f"{name} {_percent(overhead)} %" for name, overhead in rows)
