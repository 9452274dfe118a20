"""The plot of a convolution's implementations: its parts, their numbers, and which of them run."""

from __future__ import annotations

from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.capture_options import KINDS
from remat_explorer.errors import GraphError
from remat_explorer.figures.convolution_algorithms import convolution_algorithms, is_convolution, parts_of
from remat_explorer.figures.implementation_images import DARK, LIGHT, implementation_colours
from tests.figures.choices import chain_with_choices


@pytest.fixture(scope="module")
def schedule() -> Any:
    return rx.solve(chain_with_choices(), 3600, "monet", time_limit=20).schedule


def test_a_convolution_has_its_gradients_beside_it(schedule: Any) -> None:
    for operation in (0, 6):
        assert [part.title for part in parts_of(schedule, operation)] == ["forward", "weight gradient"]
    assert [part.title for part in parts_of(schedule, 5)] == ["relu backward"]
    assert is_convolution(schedule.graph, 0)
    assert not is_convolution(schedule.graph, 5)


def test_runs_are_counted_by_implementation(schedule: Any) -> None:
    forward = parts_of(schedule, 0)[0]
    assert [(one.name, one.kind, one.workspace) for one in forward.algorithms] == [
        ("default", "", 0),
        ("native", "algorithms", 1600),
    ]
    assert sum(one.runs for one in forward.algorithms) == (schedule.R[:, 0] > 0).sum()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_implementations_that_run_are_filled_and_named(theme: Any, schedule: Any) -> None:
    figure: Any = convolution_algorithms(schedule, 0, theme)
    for part, trace in zip(parts_of(schedule, 0), figure.data, strict=True):
        assert list(trace.marker.symbol) == ["circle" if one.runs else "circle-open" for one in part.algorithms]
        assert list(trace.text) == [one.name if one.runs else "" for one in part.algorithms]
        hues = implementation_colours((one.kind for one in part.algorithms), theme)
        assert list(trace.marker.color) == [hues[one.kind] for one in part.algorithms]


def test_an_operation_that_does_not_exist_is_refused(schedule: Any) -> None:
    with pytest.raises(GraphError, match="there is no operation 7; 'choices' has those from 0 to 6"):
        convolution_algorithms(schedule, 7)


def test_every_kind_has_a_colour_of_its_own_in_both_themes() -> None:
    for theme in (LIGHT, DARK):
        assert set(theme) >= {"", *KINDS}
        assert len(set(theme.values())) == len(theme)
