"""What is left of an explorer on a page without a kernel: one line and a picture of how it stood."""

from __future__ import annotations

import re
from typing import Any

import pytest

import remat_explorer as rx
from remat_explorer.explorer.static_view import static_html
from tests.explorer.driven import driver_of, settled
from tests.hostile_names import hostile


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What is displayed: data, and how."""
    seen: list[tuple[dict[str, Any], dict[str, Any]]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, **how: seen.append((data, how)))
    monkeypatch.delenv("SERVER_SOFTWARE", raising=False)
    return seen


def test_the_picture_has_the_matrices_the_memory_and_what_is_proven() -> None:
    state = driver_of(rx.linear(8), budget=4).state
    shown = static_html(state)
    assert "<b>linear8</b>: Best known within 4 B: overhead +52.9 %, optimal (proven)." in shown
    assert shown.count("data:image/png;base64,") == 3
    steps = re.findall(r"V([\d.]+)H", shown)
    plan = state.plan
    assert len(steps) == len(plan.timeline.during)
    assert min(map(float, steps)) == pytest.approx(120 * (1 - plan.peak / (1.05 * 4)), abs=0.1)


def test_it_comes_beneath_the_explorer_and_follows_what_is_solved(displayed: Any) -> None:
    explorer = settled(rx.Explorer(graph=rx.linear(8), budget=6, improve=False, sweep=False))
    explorer._ipython_display_()
    (widget, _), (first, how) = displayed
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert "within 6 B" in first["text/html"]
    assert not how["update"]
    explorer.state.budget = 4
    explorer.solve()
    settled(explorer)
    latest, again = displayed[-1]
    assert "within 4 B" in latest["text/html"]
    assert again["update"]
    assert again["display_id"] == how["display_id"]
    count = len(displayed)
    explorer.solve()  # from the cache, and the same
    settled(explorer)
    assert len(displayed) == count
    explorer.close()


def test_voila_needs_no_picture(displayed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5")
    explorer = settled(rx.Explorer(graph=rx.linear(4), improve=False, sweep=False))
    explorer._ipython_display_()
    assert len(displayed) == 1
    explorer.close()


def test_names_are_text() -> None:
    shown = static_html(driver_of(hostile(rx.linear(4))).state)
    assert "onerror" not in shown.replace("&lt;img src=x onerror=", "")
    assert "<img src=x" not in shown
