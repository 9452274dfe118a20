"""The map of what sending saves: what its cells claim follows from their rows, and the page says what they say."""

from pathlib import Path
from typing import Any

import pytest

from reproduction.transfer_map import BOTH, EITHER, RECOMPUTE, SEND, Cell, cells_of, kept_cells, summary, transfer_map

PAGE = (Path(__file__).parents[2] / "docs" / "offload.md").read_text()


def choice(overhead: float | None, bound: float) -> dict[str, Any]:
    return {"overhead": overhead, "bound": bound}


def test_plans_hold_at_higher_bandwidths_and_bounds_at_lower_ones() -> None:
    row = {"network": "n", "device": "d", "f": 0.2, "recompute": 1.10, "recompute_bound": 1.09}
    cells = [
        {"bandwidth": 8, "send": choice(None, 1.0), "both": choice(1.12, 1.0), "excess": 1.5},
        {"bandwidth": 16, "send": choice(1.30, 1.0), "both": choice(1.05, 1.04), "excess": 1.2},
        {"bandwidth": 32, "send": choice(1.40, 1.02), "both": choice(1.06, 1.01), "excess": 1.0},
    ]
    slow, middle, fast = cells_of([row | {"cells": cells}])
    assert [cell.both for cell in (slow, middle, fast)] == pytest.approx([10, 5, 5])
    assert [cell.bound for cell in (slow, middle, fast)] == pytest.approx([4, 4, 1])
    assert [cell.send for cell in (middle, fast)] == pytest.approx([30, 30])
    assert [cell.send_bound for cell in (slow, middle, fast)] == pytest.approx([50, 20, 2])
    assert [cell.choice for cell in (slow, middle, fast)] == [RECOMPUTE, BOTH, BOTH]
    assert [cell.proven for cell in (slow, middle, fast)] == [False, True, False]
    assert slow.saved == pytest.approx((0, 6))
    assert middle.saved == pytest.approx((4, 6))


@pytest.mark.parametrize(
    ("recompute", "send", "both", "bounds", "expected"),
    [
        (5.0, 5.2, 5.0, (5.0, 0.0, 4.8), (EITHER, True)),
        (5.0, 0.0, 0.0, (4.0, 0.0, 0.0), (SEND, True)),
        (5.0, 0.0, 0.0, (0.2, 0.0, 0.0), (SEND, False)),
        (None, None, None, (0.0, 0.0, 0.0), (BOTH, False)),
    ],
)
def test_a_choice_is_proven_by_bounds_alone(recompute, send, both, bounds, expected) -> None:
    cell = Cell("n", "d", 0.2, 8, recompute, send, both, *bounds)
    assert (cell.choice, cell.proven) == expected


def test_no_bound_of_the_map_is_above_a_plan_and_the_page_has_its_cells() -> None:
    cells = kept_cells()
    for cell in cells:
        for plan, bound in (
            (cell.recompute, cell.recompute_bound),
            (cell.send, cell.send_bound),
            (cell.both, cell.bound),
        ):
            assert plan is None or bound <= plan + 1e-4, cell
        told = f"(≥ {cell.bound:.1f}) |"
        if (cell.network, cell.device, cell.bandwidth, cell.f) == ("unet", "A100", 32, 0.2):
            assert f"{cell.recompute:.1f} → {cell.both:.1f} {told}" in PAGE
    assert summary(cells).count("GB/s") == len({cell.bandwidth for cell in cells})
    figure: Any = transfer_map(cells)
    assert len(figure.data) == len({cell.device for cell in cells})
