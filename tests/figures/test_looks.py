"""No figure takes a name for markup; grounds are those of themes; colours are told apart without red and green, too."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer import figures
from remat_explorer.figures.implementation_images import implementation_images
from remat_explorer.figures.palette import DARK, LIGHT, Palette
from remat_explorer.plan import Plan
from remat_explorer.solvers import Frontier
from tests.figures.choices import chain_with_choices
from tests.hostile_names import hostile

MARKUP = re.compile(r"<(?!/?(b|i|br|br/|extra|span|sup|sub)\b)[^<>]*>")  # what the figures themselves write is left out


@pytest.fixture(scope="module")
def solution() -> Any:
    return rx.solve(hostile(rx.linear(8)), budget=4)


@pytest.fixture(scope="module")
def harmful() -> Any:
    return rx.solve(hostile(chain_with_choices()), 3600, "monet").schedule


def texts(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for part in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from texts(part)


DRAWN: dict[str, Callable[..., Any]] = {
    "schedule": lambda solution, chosen, **look: figures.schedule_heatmap(solution.schedule, **look),
    "memory": lambda solution, chosen, **look: figures.memory_heatmap(solution.schedule, **look),
    "computations": lambda solution, chosen, **look: figures.computation_matrices([solution.schedule], ["it"], **look),
    "timeline": lambda solution, chosen, **look: figures.memory_timeline(Plan.of(solution.schedule), **look),
    "map": lambda solution, chosen, **look: figures.memory_map(Plan.of(solution.schedule), **look),
    "comparison": lambda solution, chosen, **look: figures.compare(solution, solution, **look),
    "network": lambda solution, chosen, **look: figures.model_graph(solution.graph, solution.schedule, 7, **look),
    "trade-off": lambda solution, chosen, **look: figures.tradeoff(Frontier(solution.graph, (solution,)), **look),
    "breakdown": lambda solution, chosen, **look: figures.memory_breakdown([solution.graph], **look),
    "case": lambda solution, chosen, **look: figures.case_study(
        "it", solution.schedule, {"it": solution.schedule}, **look
    ),
    "implementations": lambda solution, chosen, **look: implementation_images(chosen, **look),
    "algorithms": lambda solution, chosen, **look: figures.convolution_algorithms(chosen, 0, **look),
}


@pytest.mark.parametrize("name", DRAWN)
def test_no_name_is_markup_and_the_ground_is_that_of_the_theme_in(name: str, solution: Any, harmful: Any) -> None:
    drawn = [DRAWN[name](solution, harmful, theme=theme) for theme in ("light", "dark")]
    assert [text for text in texts(json.loads(drawn[0].to_json())) if MARKUP.search(text)] == []
    assert [figure.layout.paper_bgcolor for figure in drawn] == [LIGHT.ground, DARK.ground]


# Linear RGB as seen with deuteranopia. Source: Machado, Oliveira and Fernandes, "A Physiologically-based Model for
# Simulation of Color Vision Deficiency" (2009), severity 1.
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])
APART = 12  # of CIELAB's unit, in which 2 is about what is seen at all; cells are small
TOGETHER = (  # what stands in one picture
    ("forward", "backward", "recompute", "empty"),
    ("only_first", "only_second", "both", "empty"),
    ("kept", "empty"),
    ("predicted", "measured", "compared", "budget"),
    ("resident", "kept", "temporaries", "gradients"),
    ("sent", "recompute", "kept", "temporaries", "gradients", "resident", "empty", "cursor"),
    ("over", "recompute", "scale"),
)


def lab(colour: str, seen: np.ndarray | None = None) -> np.ndarray:
    rgb = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(linear if seen is None else seen @ linear, 0, 1) / WHITE
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def colours(palette: Palette, name: str) -> tuple[str, ...]:
    found = getattr(palette, name)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("names", TOGETHER, ids=" ".join)
def test_what_stands_in_one_picture_is_told_apart_with_and_without_deuteranopia(
    palette: Palette, names: tuple[str, ...]
) -> None:
    for a, b in combinations(names, 2):
        for one in colours(palette, a):
            for other in colours(palette, b):
                for seen in (None, DEUTERANOPIA):
                    assert np.linalg.norm(lab(one, seen) - lab(other, seen)) > APART, (a, one, b, other, seen is None)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_orange_is_recomputation_and_nothing_else(palette: Palette) -> None:
    orange = lab(palette.recompute)
    for name in Palette.__dataclass_fields__:
        for colour in colours(palette, name):
            if name != "recompute":
                assert np.linalg.norm(lab(colour) - orange) > 30, (name, colour)
