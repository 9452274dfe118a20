"""The arena: its rows, what makes it fail, its page, and that docs/arena.md says what the results are."""

import json
import re

import arena
import arena_text
import pytest
from arena_executed import SHARES, wrong

from reproduction.arena_page import arena_page
from reproduction.judge import Verdict

SETTINGS = {"seconds": 0.5, "proof_seconds": 0.5, "places": [0.35], "methods": ["chen-sqrt-n", "griewank", "dtr"]}


@pytest.fixture(scope="module")
def entry(compiled_search):
    return arena.of_graph("keras_segnet", SETTINGS)


@pytest.fixture(scope="module")
def known(entry):
    ran = {"model": "m", "method": "PyTorch: x", "measured_peak": 9, "time_over_eager": 1.0}
    return {
        "settings": SETTINGS,
        "graphs": {"keras_segnet": entry},
        "executed": [ran | {"gradients_equal": False, "buffers_equal": True}],
        "reported": [row(0.05, 10, 10)],
    }


def row(share: float, budget: int, ours: int, equal: bool = True) -> dict:
    overheads = {"torch_overhead": 1.5, "ours_overhead": 1.1}
    return {"share": share, "torch": 12, "budget": budget, "ours": ours, "equal": equal} | overheads


def test_a_graph_is_judged_and_summed_up(known):
    verdicts = arena.verdicts_of(known)
    assert [v.method for v in verdicts] == SETTINGS["methods"]
    assert all(v.ours is not None and (v.at_least or 0) >= 0 and not v.fault for v in verdicts if v.peak is not None)
    rows = arena.summary(verdicts)
    assert [line[1] for line in rows] == SETTINGS["methods"]
    assert arena.faults_of(verdicts, known) == []
    first = next(v for v in verdicts if v.peak is not None)
    below = Verdict.from_document(first.to_document() | {"cost": 0.9 * (first.bound or 1.0)})
    assert "less than the bound" in arena.faults_of([below], {})[0]


def test_ours_above_its_budget_or_not_monotone_is_a_fault():
    assert wrong([row(0.05, 10, 10), row(0.1, 12, 12)]) == []
    assert wrong([row(0.05, 10, 11)]) == ["setting 0.05: 11 of 10 bytes"]
    assert wrong([row(0.05, 10, 10), row(0.1, 12, 9)]) == ["settings 0.05 and 0.1: the peak falls"]
    assert wrong([row(0.05, 10, 10, equal=False)]) == ["setting 0.05: results differ"]
    assert len(SHARES) == 12


def test_the_page_needs_no_network_and_says_who_changed_the_gradients(known):
    page = arena_page(arena.verdicts_of(known), known["executed"], known["reported"], [("python", "3")])
    assert "Gradients changed by: PyTorch: x" in page
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert not re.search(r'<(?:script|link|img)[^>]*(?:src|href)="http', page)
    assert all(f'id="{place}"' in page for place in ("heat-map", "curves-0", "heat-map-data"))


def test_the_document_has_what_the_results_say(folder):
    text = arena_text.PAGE.read_text(encoding="utf-8")
    between = text.partition(arena_text.BEGIN)[2].partition(arena_text.END)[0].strip()
    name = re.search(r"`benchmarks/results/(\w+)\.json`", between)
    assert name is not None
    known = json.loads((folder / "results" / f"{name[1]}.json").read_text())["details"]
    assert between == arena_text.results(name[1], known)
    assert arena.faults_of(arena.verdicts_of(known), known) == []
