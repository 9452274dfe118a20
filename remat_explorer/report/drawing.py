"""A figure in the page: drawn for light ground, with what is different on dark ground."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from remat_explorer.figures.palette import Theme
from remat_explorer.report.html import data

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Path = tuple[str | int, ...]


def drawing(identity: str, draw: Callable[[Theme], Figure], label: str, broad: bool = False) -> str:
    """A place for a figure, and its data in both themes.

    Args:
        identity: of the place, unique in the page.
        draw: makes the figure for a theme.
        label: what the figure shows, for those who do not see it.
        broad: whether it needs more width than a phone has, and is moved under its frame there.
    """
    light, dark = (json.loads(str(_without_template(draw(theme)).to_json())) for theme in ("light", "dark"))
    entry = {"light": light, "dark": [[list(path), value] for path, value in differences(light, dark)]}
    height = light["layout"].get("height", 400)
    said = escape(label)
    place = f'<div class="figure" id="{identity}" role="group" aria-label="{said}" style="min-height:{height}px"></div>'
    place = f'<div class="frame{" broad" if broad else ""}">{place}</div>'
    return place + data(f"{identity}-data", entry)


def differences(old: Any, new: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Where two JSON values differ: paths into the old one, and what stands there in the new one.

    >>> list(differences({"a": [1, {"b": 2}], "c": 3}, {"a": [1, {"b": 5}], "c": 3}))
    [(('a', 1, 'b'), 5)]
    """
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        for key in old:
            yield from differences(old[key], new[key], (*path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, (*path, i))
    elif old != new:
        yield path, new


def _without_template(figure: Figure) -> Figure:
    """plotly's standard template is several kilobytes in every figure, and the figures set what they show."""
    figure.update_layout(template="none")
    return figure
