"""Choices changed many at once: cheaper walks within the budget, of implementations that may be chosen."""

from __future__ import annotations

from remat_explorer.graph import Graph
from remat_explorer.plan import Plan
from remat_explorer.solvers import checkpoint_all_peak
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices, Tables, allowed_codes
from remat_explorer.solvers.monet.selections import ChoiceSearch
from tests.solvers.monet.synthetic_choices import with_choices


def test_changes_make_walks_cheaper_within_the_budget(data):
    graph = with_choices(Graph.load(data / "captured" / "unet.json"))
    codes = allowed_codes(graph, "exact")
    search = ChoiceSearch(Tables(CondensedChoices.of(graph, codes)), {}, codes=codes)
    budget = int(0.5 * checkpoint_all_peak(graph))
    search.lower(budget)
    before = search.cost
    search.improve(100, enough=0.0)
    schedule, selection = search.schedule(), search.selection
    assert search.judged > 1
    assert schedule is not None
    assert selection is not None
    assert search.cost < before
    assert abs(schedule.cost - search.cost) <= 1e-6 * search.cost
    assert Plan.of(schedule).peak <= budget
    assert search.selection is not None
    chosen = zip(selection.operations, selection.codes, strict=True)
    assert all(code in codes[k] for k, code in chosen)
