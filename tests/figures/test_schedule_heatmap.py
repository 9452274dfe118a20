"""R and S as they are, and U with its highest number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from remat_explorer.figures import memory_heatmap, schedule_heatmap
from remat_explorer.figures.byte_axis import ByteAxis
from remat_explorer.figures.palette import DARK, LIGHT
from remat_explorer.figures.schedule_heatmap import (
    BACKWARD,
    EMPTY,
    FORWARD,
    RECOMPUTE,
    computation_kinds,
    memory_in_stages,
)


def test_kinds_tell_first_computations_from_recomputations(tight: Any) -> None:
    kinds = computation_kinds(tight.schedule)
    assert (kinds == FORWARD).sum() == 8
    assert (kinds == BACKWARD).sum() == 9
    assert (kinds == RECOMPUTE).sum() == tight.schedule.recomputations == 9
    assert ((kinds == EMPTY) == (tight.schedule.R == 0)).all()


def test_schedule_heatmap_holds_R_and_S_and_names_its_colours(tight: Any) -> None:
    figure: Any = schedule_heatmap(tight.schedule)
    assert (np.asarray(figure.data[0].z) == computation_kinds(tight.schedule)).all()
    assert (np.asarray(figure.data[1].z) == tight.schedule.S).all()
    assert [trace.name for trace in figure.data[2:]] == ["forward", "backward", "recompute", "kept"]
    assert (figure.layout.xaxis.title.text, figure.layout.xaxis2.title.text) == ("operation", "value")


def test_memory_heatmap_peaks_at_the_largest_U(tight: Any) -> None:
    figure: Any = memory_heatmap(tight.schedule)
    assert np.nanmax(figure.data[0].z) == tight.schedule.U.max()
    assert np.isnan(figure.data[0].z[0][5])  # stage 0 computes operation 0 only
    assert memory_in_stages(tight.schedule).mask.sum() == 17 * 16 / 2


def test_axes_name_the_unit_of_their_bytes() -> None:
    assert [ByteAxis.up_to(count).unit for count in (17, 5e3, 3e6, 2**31)] == ["bytes", "KiB", "MiB", "GiB"]


@pytest.mark.parametrize("figure", [schedule_heatmap, memory_heatmap])
def test_dark_figures_have_a_dark_ground(figure: Any, tight: Any) -> None:
    assert figure(tight.schedule, theme="dark").layout.paper_bgcolor == DARK.ground != LIGHT.ground
