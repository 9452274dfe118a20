"""What kinds of implementations are worth: exact on small graphs, monotone on all, and honest when it is cut short."""

import json
import math
from dataclasses import replace

import pytest

import remat_explorer as rx
from remat_explorer.errors import SolutionError, SolverError, UnknownNameError
from remat_explorer.graph import Graph
from remat_explorer.instances import linear
from remat_explorer.plan import Plan
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import Ablation, ablation, checkpoint_all_peak
from remat_explorer.solvers.ablation import ablation_run
from remat_explorer.solvers.monet.condensed_choices import allowed_codes
from tests.solvers.exhaustive import frontier_optimum
from tests.solvers.monet.choice_graphs import changed, random_graph, with_kinds
from tests.thorough import thorough_but

ENOUGH = 60.0  # seconds for searches that end by themselves


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))


def small(seed: int) -> Graph:
    return with_kinds(random_graph(seed))


def budgets_of(graph: Graph) -> list[int]:
    peak = checkpoint_all_peak(graph)
    return [int(share * peak) for share in (0.7, 0.85, 1.0)]


def require_monotone(found: Ablation) -> None:
    """More kinds or more memory never cost more, and bounds hold for fewer kinds and for less memory."""
    for kinds in found.sets:
        codes = allowed_codes(found.graph, kinds)
        for solution in found.curve(kinds):
            for _, k, code in solution.schedule.sequence if solution.schedule is not None else ():
                assert code in codes[k]
            for other in found.sets:
                if not set(kinds) <= set(other):
                    continue
                for beside in found.curve(other):
                    if beside.budget >= solution.budget:
                        assert (beside.cost or math.inf) <= (solution.cost or math.inf)
                    if beside.budget >= solution.budget and beside.lower_bound is not None and solution.schedule:
                        assert beside.lower_bound <= (solution.lower_bound or 0.0) + 1e-9
        if kinds in found.smallest:
            least = found.smallest_budget(kinds)
            assert found.smallest_budget("all").known_feasible <= least.known_feasible
            assert found.smallest_budget("all").lower_bound <= least.lower_bound <= least.known_feasible
            assert least.known_feasible <= found.smallest_budget("none").known_feasible


@pytest.mark.parametrize("seed", thorough_but([0, 1, 2, 6, 8, 11], 1, 8))
def test_every_point_of_a_small_graph_is_the_optimum_of_its_kinds(seed):
    graph = small(seed)
    found = ablation(graph, budgets_of(graph), time_limit=ENOUGH)
    assert found.kinds == graph.kinds
    require_monotone(found)
    for kinds in found.sets:
        # other kinds take more memory than there is
        own = changed(
            graph, lambda way, kinds=kinds: way if {*way.kinds} <= {*kinds} else replace(way, workspace=10**12)
        )
        for solution in found.curve(kinds):
            optimum = frontier_optimum(own, solution.budget)
            assert solution.cost == (None if math.isinf(optimum) else pytest.approx(optimum))
            assert solution.status is (Status.INFEASIBLE if math.isinf(optimum) else Status.OPTIMAL)
        least = found.smallest_budget(kinds)
        assert least.proven
        assert math.isfinite(frontier_optimum(own, least.known_feasible))
        assert math.isinf(frontier_optimum(own, least.known_feasible - 1))


def test_searches_that_are_cut_short_still_never_lose_to_fewer_kinds_or_less_memory(residual):
    found = ablation(residual, ["45%", "70%"], time_limit=0.5)
    require_monotone(found)
    together, nothing = found.curve("all"), found.curve("none")
    assert (together[-1].cost or math.inf) <= (nothing[-1].cost or math.inf)
    for solution in (*together, *nothing):
        if solution.schedule is not None:
            assert (solution.lower_bound or 0.0) <= solution.schedule.cost
            assert Plan.of(solution.schedule).peak <= solution.budget


def test_kinds_are_those_of_the_graph_and_of_the_ablation():
    with pytest.raises(UnknownNameError, match="did you mean 'masks'"):
        ablation(small(1), 2, ["mask", "masks"])
    with pytest.raises(SolverError, match="capture the model"):
        ablation(linear(3), 2, ["masks"])
    found = ablation(small(8), 2, ["masks", "activations"], time_limit=ENOUGH)
    assert found.sets == ((), ("masks",), ("activations",), ("masks", "activations"))
    assert found.curve(["activations", "masks"]) == found.curve("all")
    with pytest.raises(UnknownNameError, match="unknown kind of this ablation 'lean'"):
        found.curve("lean")
    single = ablation(small(1), 2, "masks", time_limit=ENOUGH)
    assert single.sets == ((), ("masks",))
    assert [row[0] for row in single.rows()] == ["kinds", "none", "masks"]
    with pytest.raises(SolutionError, match="no set"):
        ablation(small(8), [10**6], time_limit=ENOUGH).curve(small(8).kinds[:2])


def test_the_table_names_what_is_infeasible_and_what_is_not_found(residual):
    graph = small(7)
    least = ablation(graph, [1, checkpoint_all_peak(graph)], time_limit=ENOUGH)
    assert str(least).count("infeasible") == len(least.sets)
    assert "%" in str(least).splitlines()[-1].split("infeasible")[-1]
    begun = ablation(residual, ["45%"], ["masks"], cancelled=lambda: True)
    assert all(row[1:] == ("", "not found") for row in begun.rows()[1:])
    with pytest.raises(SolutionError, match="ended before"):
        begun.smallest_budget("none")


def test_progress_names_every_part_and_a_cancelled_ablation_keeps_what_it_has():
    graph, heard = small(7), []
    whole = ablation(graph, budgets_of(graph), time_limit=ENOUGH, on_progress=heard.append)
    parts = len(whole.sets) * 4
    assert [progress.done for progress in heard] == list(range(parts + 1))
    assert {progress.parts for progress in heard} == {parts}
    assert heard[0].kinds == "none"
    assert heard[-2].budget == whole.budgets[-1]
    heard.clear()
    enough = len(whole.sets) + 2
    cut = ablation(
        graph, budgets_of(graph), time_limit=ENOUGH, on_progress=heard.append, cancelled=lambda: len(heard) >= enough
    )
    require_monotone(cut)
    assert cut.smallest_budget().known_feasible == whole.smallest_budget().known_feasible
    assert cut.solutions.keys() == whole.solutions.keys()


def test_points_are_kept_and_taken_from_the_cache(monkeypatch):
    graph = small(7)
    first = ablation(graph, budgets_of(graph), time_limit=ENOUGH, cache=True)

    def refuse(*arguments, **options):
        raise AssertionError("this was solved before")

    monkeypatch.setattr(ablation_run, "improve_monet", refuse)
    again = ablation(graph, budgets_of(graph), time_limit=ENOUGH, cache=True)
    assert str(again) == str(first)


def test_the_file_says_the_same_and_is_checked(tmp_path):
    graph = small(3)
    found = rx.ablation(graph, 4, time_limit=ENOUGH)
    assert found.budgets[0] == found.smallest_budget().known_feasible
    assert found.budgets[-1] == checkpoint_all_peak(graph)
    assert all(solution.schedule is not None for solution in found.curve())
    path = found.save(tmp_path / "ablation.json")
    loaded = Ablation.load(path, graph)
    assert str(loaded) == str(found)
    assert [s.status for s in loaded.solutions.values()] == [s.status for s in found.solutions.values()]
    assert loaded.smallest_budget().lower_bound == found.smallest_budget().lower_bound
    with pytest.raises(SolutionError, match="another graph"):
        Ablation.load(path, small(2))
    peak = found.curve("all")[-1].peak
    infeasible = dict.fromkeys(("runs", "cost", "peak", "lower_bound", "gap")) | {"status": "infeasible"}
    for damage, message in (
        (lambda d: d["sets"][0]["points"].__setitem__(-1, d["sets"][-1]["points"][-1]), "of another kind"),
        (lambda d: d.update(budgets=[1]), "not at the budgets"),
        (lambda d: d["sets"][1]["smallest"].update(known_feasible=1), "has a peak of"),
        (lambda d: d.update(kinds=["masks"]), r"sets\[1\] is expected to be of the kinds"),
        (
            lambda d: d["sets"][-1].update(
                smallest={"known_feasible": peak, "lower_bound": peak, "runs": d["sets"][-1]["points"][-1]["runs"]}
            ),
            f"has the lower bound {peak} B, but a schedule takes",
        ),
        (
            lambda d: d["sets"][-1]["points"][-1].update(infeasible),
            'says status "infeasible" within .*, but a schedule costs',
        ),
        (lambda d: d.update(sets=[]), "sets of kinds"),
    ):
        document = json.loads(found.save(path).read_text())
        damage(document)
        path.write_text(json.dumps(document))
        with pytest.raises(SolutionError, match=message):
            Ablation.load(path, graph)
