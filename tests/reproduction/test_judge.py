"""The judge: what a method's schedule costs beside what is proven at its peak, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.errors import ScheduleError
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import STRATEGIES
from remat_explorer.solvers.method import Candidate, Method, Support, within_budget
from reproduction.judge import Contender, Proofs, Verdict, contenders, judge
from tests.search_fixtures import compiled_search  # noqa: F401


def planted(schedule: Schedule) -> Method:
    """A method that has one schedule, whatever it is asked for."""

    def candidates(graph):
        yield Candidate(schedule, "planted")

    yes = Support.YES
    return Method(within_budget(candidates), "planted", "a test", yes, yes, yes, candidates=candidates)


def test_every_method_on_a_chain_is_beside_a_proof_at_its_own_peak():
    graph = rx.linear(8)
    verdicts = judge(graph, contenders(), [5, 7], seconds=0.5, proof_seconds=60.0)
    assert {verdict.method for verdict in verdicts} == {one.name for one in contenders()}
    found = [verdict for verdict in verdicts if verdict.peak is not None and verdict.stages]
    assert len(found) > 20
    assert {verdict.status for verdict in found} == {"optimal"}
    assert all(v.at_least == pytest.approx(v.at_most) and v.at_least >= 0 for v in found if v.at_least is not None)
    assert not any(verdict.fault for verdict in verdicts)
    proven = {v.peak: v.ours for v in found}
    assert all(rx.solve(graph, peak).cost == cost for peak, cost in proven.items() if peak is not None)


def test_a_planted_wrong_schedule_is_refused(monkeypatch):
    graph = rx.linear(4)
    nothing_kept = Schedule(graph, np.eye(graph.n, dtype=int), np.zeros((graph.n, graph.n), dtype=int))
    monkeypatch.setitem(STRATEGIES, "planted", planted(nothing_kept))
    with pytest.raises(ScheduleError, match="neither computed nor retained"):
        judge(graph, [Contender("planted", "planted")], [5])


def test_a_method_above_its_budget_has_its_smallest_peak_and_one_that_is_not_for_the_graph_says_why(monkeypatch):
    graph = rx.linear(4)
    monkeypatch.setitem(STRATEGIES, "planted", planted(rx.solvers.checkpoint_all(graph)))
    (found,) = judge(graph, [Contender("planted", "planted")], [4])
    assert (found.kept, found.peak, found.label) == (False, 6, "planted")
    assert found.ours == found.cost == graph.total_cost
    (found,) = judge(rx.Graph.load("tests/data/captured/unet.json"), [Contender("griewank", "griewank")], [10**10])
    assert (found.peak, found.kept) == (None, None)
    assert "is no chain" in found.problem


def test_a_bound_is_used_for_smaller_peaks_and_never_for_larger():
    graph = rx.linear(8)
    proofs = Proofs(graph, 5.0)
    proofs.learn([4, 8])
    at_four = proofs.beside(Verdict("linear8", "m", 4, 17.0, cost=30.0, peak=4))
    at_ten = proofs.beside(Verdict("linear8", "m", 10, 17.0, cost=17.0, peak=10))
    assert (at_four.bound, at_ten.bound) == (26.0, 17.0)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"cost": 20.0}, ""),
        ({"cost": 19.0}, "less than ours"),
        ({"cost": 17.0}, "less than the bound"),
        ({"cost": 19.0, "status": "feasible"}, ""),
        ({"cost": 17.0, "stages": False}, ""),
        ({"status": "infeasible", "bound": None, "ours": None}, "infeasible"),
    ],
)
def test_a_fault_is_what_refutes_a_claim_of_ours(change, fault):
    verdict = Verdict("g", "m", 9, 10.0, 25.0, 9, bound=18.0, ours=20.0, ours_peak=9, status="optimal")
    said = replace(verdict, **change).fault
    assert (fault in said) if fault else said == ""
    assert Verdict.from_document(verdict.to_document()) == verdict
