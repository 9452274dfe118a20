"""Pictures of docs/teaching-slides.md, figures of the package for the chain of eight layers: `make pictures`.

Each file ends with a digest of the figure that it was drawn from, so that a test finds it stale.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import remat_explorer as rx
from remat_explorer.figures import memory_timeline, schedule_heatmap, tradeoff

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FOLDER = Path(__file__).parents[2] / "docs" / "slides"
SIZE = {"width": 860, "height": 420}
DRAW = """async ([figure, size]) => decodeURIComponent((await Plotly.toImage(
    {data: figure.data, layout: {...figure.layout, title: undefined, ...size}}, {format: "svg", ...size}
)).split(",").slice(1).join(","))"""


def slide_figures() -> dict[str, Figure]:
    """Every picture of the slides, by the name of its file."""
    chain = rx.linear(8)
    keep = rx.solve(chain, "100%", "checkpoint-all")
    less = rx.solve(chain, 5)
    assert keep.plan is not None
    assert less.plan is not None
    assert less.schedule is not None
    return {
        "keep-everything.svg": memory_timeline(keep.plan),
        "five-bytes.svg": memory_timeline(less.plan, budget=5, other=keep.plan, other_name="keeping everything"),
        "tables.svg": schedule_heatmap(less.schedule),
        "budgets.svg": tradeoff(rx.sweep(chain, list(range(3, 11)))),
    }


def digest_of(figure: Figure) -> str:
    """What a picture is drawn from: the figure's data, by 16 digits."""
    drawn: dict[str, Any] = json.loads(figure.to_json() or "")
    return hashlib.sha256(json.dumps(drawn["data"], sort_keys=True).encode()).hexdigest()[:16]


def stale() -> list[str]:
    """Pictures that are missing, or drawn from another figure."""
    said = {name: f"<!-- {digest_of(figure)} -->" for name, figure in slide_figures().items()}
    return [name for name, digest in said.items() if not _text_of(name).rstrip().endswith(digest)]


def draw_slides(page: Any) -> None:
    """Write the pictures that are stale.

    Args:
        page: of a browser, with plotly loaded.
    """
    FOLDER.mkdir(exist_ok=True)
    figures, old = slide_figures(), stale()
    for name, figure in figures.items():
        if name not in old:
            continue
        drawn = page.evaluate(DRAW, [json.loads(figure.to_json() or ""), SIZE])
        (FOLDER / name).write_text(f"{drawn}\n<!-- {digest_of(figure)} -->\n", "utf-8")


def _text_of(name: str) -> str:
    path = FOLDER / name
    return path.read_text("utf-8") if path.exists() else ""
