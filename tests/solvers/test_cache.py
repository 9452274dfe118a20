"""Solutions on disk: when a kept one answers, when it does not, and what a broken cache costs: nothing."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from remat_explorer import cache_folder
from remat_explorer.cache_folder import entry_path
from remat_explorer.instances import linear
from remat_explorer.quantities import SMALLEST
from remat_explorer.solvers import SolveJob, solve
from remat_explorer.solvers import cache as cache_module
from remat_explorer.solvers.base import Answer, checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.memory import minimum_budget as smallest_known
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.solution import Solution, Status
from remat_explorer.solvers.solve import judge

GRAPH = linear(8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The budgets for which the optimal strategy was run, in this process."""
    ran: list[int] = []
    strategy = STRATEGIES["optimal"]

    def counting(graph, budget, limits):
        ran.append(budget)
        return strategy(graph, budget, limits)

    monkeypatch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], run=counting))
    return ran


def question(time_limit: float = 60.0, budget: int = 10, threads: int = 1, **options) -> Question:
    return Question(GRAPH, budget, "optimal", "highs", time_limit, threads, options)


def answer(asked: Question, lower_bound: float | None = 15.0, seconds: float = 1.0) -> Solution:
    """A feasible solution, kept out of proof by its bound."""
    return judge(GRAPH, asked.budget, asked.strategy, Answer(checkpoint_all(GRAPH), lower_bound), seconds)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_the_same_question_is_answered_from_the_cache_with_the_time_of_the_first_solve(calls):
    heard: list[str] = []
    first = solve(GRAPH, 4, cache=True)
    again = solve(GRAPH, 4, cache=True, on_progress=lambda progress: heard.append(progress.doing))
    assert calls == [4]
    assert heard == ["found in the cache"]
    assert again.to_document() == first.to_document()
    assert (again.status, again.cost, again.seconds) == (Status.OPTIMAL, 26.0, first.seconds)


def test_a_call_that_asks_for_no_cache_neither_reads_nor_writes_one(calls, folder):
    solve(GRAPH, 4)
    assert not folder.exists()
    solve(GRAPH, 4, cache=True)
    solve(GRAPH, 4)
    assert calls == [4, 4, 4]


def test_a_proven_answer_holds_for_any_time_limit():
    solve(GRAPH, 4, time_limit=50, cache=True)
    assert load_solution(Question(GRAPH, 4, "optimal", "highs", 1e6)) is not None


def test_an_infeasible_budget_is_remembered_for_any_time_limit():
    solve(GRAPH, 4, "checkpoint-all", cache=True)
    kept = load_solution(Question(GRAPH, 4, "checkpoint-all", "highs", 1e6))
    assert kept is not None
    assert (kept.status, kept.schedule, kept.lower_bound) == (Status.INFEASIBLE, None, None)


@pytest.mark.parametrize("status", [Status.FEASIBLE, Status.UNKNOWN])
def test_an_unproven_answer_counts_only_if_its_search_had_as_much_time(status):
    asked = question(time_limit=10)
    kept = answer(asked) if status == Status.FEASIBLE else judge(GRAPH, 10, "optimal", Answer(None, 15.0), 10.0)
    assert kept.status == status
    assert store_solution(asked, kept) == ""
    assert load_solution(question(time_limit=10)) is not None
    assert load_solution(question(time_limit=5)) is not None
    assert load_solution(question(time_limit=10.1)) is None


def test_an_unproven_answer_counts_only_if_its_search_had_as_many_threads():
    store_solution(question(threads=2), answer(question()))
    assert load_solution(question(threads=1)) is not None
    assert load_solution(question(threads=2)) is not None
    assert load_solution(question(threads=3)) is None
    store_solution(question(threads=2), answer(question(), 17.0))
    assert load_solution(question(threads=3)) is not None  # which is proven


def test_a_shorter_search_does_not_replace_a_longer_one_but_a_proof_does():
    store_solution(question(time_limit=10), answer(question(), 15.0))
    store_solution(question(time_limit=2), answer(question(), 14.0))
    kept = load_solution(question(time_limit=10))
    assert kept is not None
    assert kept.lower_bound == 15.0
    store_solution(question(time_limit=2), answer(question(), 17.0))
    store_solution(question(time_limit=20), answer(question(), 14.0))
    kept = load_solution(question(time_limit=20))
    assert kept is not None
    assert (kept.status, kept.lower_bound) == (Status.OPTIMAL, 17.0)


def test_a_search_that_was_cancelled_counts_only_as_long_as_it_ran():
    def stop_after_planning(graph, budget, limits):
        return Answer(checkpoint_all(graph), 15.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], run=stop_after_planning))
        solution = solve(GRAPH, 10, cache=True, cancelled=lambda: True)
    assert solution.status == Status.FEASIBLE
    assert load_solution(question(time_limit=60)) is None
    assert load_solution(question(time_limit=solution.seconds)) is not None


@pytest.mark.parametrize(
    "other",
    [
        Question(dataclasses.replace(GRAPH, name="another chain"), 10, "optimal", "highs", 1.0),
        Question(GRAPH, 9, "optimal", "highs", 1.0),
        Question(GRAPH, 10, "checkmate-ilp", "highs", 1.0),
        Question(GRAPH, 10, "optimal", "cbc", 1.0),
        question(time_limit=1.0, splits=2),
    ],
)
def test_every_part_of_a_question_counts(other):
    store_solution(question(), answer(question()))
    assert load_solution(question(1.0)) is not None
    assert load_solution(other) is None


def test_another_version_of_the_package_solves_anew(monkeypatch):
    store_solution(question(), answer(question()))
    monkeypatch.setattr(cache_module, "__version__", "999.0")
    assert load_solution(question()) is None


def edited(**entries) -> Callable[[dict], None]:
    return lambda document: document["solution"].update(entries)


def without_a_checkpoint(document: dict) -> None:
    document["solution"]["S"] = ["0" * len(row) for row in document["solution"]["S"]]


@pytest.mark.parametrize(
    "damage",
    [
        edited(cost=16.0),
        edited(peak=9),
        edited(status="optimal"),
        edited(status="infeasible"),
        edited(status="best"),
        edited(lower_bound=18.0),
        edited(lower_bound="low"),
        edited(seconds=-1.0),
        edited(solver=None),
        edited(budget=9),
        edited(strategy="checkmate-ilp"),
        edited(R=None, S=None),
        edited(R=["1"]),
        without_a_checkpoint,
        lambda document: document["key"].update(budget=9),
        lambda document: document.update(time_limit="long"),
        lambda document: document.update(threads=None),
        lambda document: document.update(version=2),
        lambda document: document.pop("graph"),
    ],
)
def test_a_file_that_does_not_hold_the_answer_is_removed(damage, folder):
    store_solution(question(), answer(question()))
    assert load_solution(question()) is not None
    path = only_file(folder)
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))
    assert load_solution(question()) is None
    assert not path.exists()


def test_a_forged_infeasible_is_solved_anew_where_something_fits(calls):
    """Written by our own means, so that nothing but the claim is wrong."""
    forged = judge(GRAPH, 4, "optimal", Answer(None, infeasible=True), 1.0)
    assert store_solution(question(budget=4), forged) == ""
    assert load_solution(question(budget=4)) is None
    store_solution(question(budget=4), forged)
    assert (solve(GRAPH, 4, cache=True).status, calls) == (Status.OPTIMAL, [4])
    assert (solve(GRAPH, 4, cache=True).cost, calls) == (26.0, [4])


def test_an_infeasible_that_no_single_moment_proves_is_solved_anew_and_one_that_does_is_kept():
    chain, budget = linear(6), 3  # 3 bytes are the working set of an operation
    asked = Question(chain, budget, "checkmate-ilp", "highs", 60.0)
    store_solution(asked, judge(chain, budget, asked.strategy, Answer(None, infeasible=True), 1.0))
    assert load_solution(asked) is None
    less = Question(chain, budget - 1, "checkmate-ilp", "highs", 60.0)
    store_solution(less, judge(chain, budget - 1, less.strategy, Answer(None, infeasible=True), 1.0))
    assert load_solution(less) is not None


@pytest.mark.parametrize("bound", [26.0, 25.0, 22.5])
def test_a_forged_bound_is_solved_anew_where_a_schedule_costs_less(bound, calls):
    """A schedule of 26 is the optimum within 4 bytes; within 5 it is 22."""
    worse = solve(GRAPH, 4).schedule
    forged = judge(GRAPH, 5, "optimal", Answer(worse, bound), 1.0)
    store_solution(question(budget=5), forged)
    solved = solve(GRAPH, 5, cache=True, time_limit=60, threads=1)
    assert (solved.status, solved.cost, solved.lower_bound, calls) == (Status.OPTIMAL, 22.0, 22.0, [4, 5])


def test_a_forged_smallest_budget_is_looked_for_anew(folder):
    peak = checkpoint_all_peak(GRAPH)
    asked = Question(GRAPH, peak, SMALLEST, "", 0.0)
    store_solution(asked, Solution(GRAPH, SMALLEST, Status.FEASIBLE, peak, checkpoint_all(GRAPH), None, 0.0))
    assert smallest_known.smallest_known(GRAPH, cache=True) == 3
    assert json.loads(only_file(folder).read_text())["solution"]["peak"] == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\x00", b"[" * 100_000, b"null"])
def test_a_damaged_file_is_solved_again_and_replaced(content, folder, calls):
    solve(GRAPH, 4, cache=True)
    path = only_file(folder)
    path.write_bytes(content)
    assert solve(GRAPH, 4, cache=True).cost == 26.0
    assert solve(GRAPH, 4, cache=True).cost == 26.0
    assert calls == [4, 4]


def test_what_a_killed_process_left_of_a_file_goes_with_time_and_a_file_in_the_making_stays(folder):
    solve(GRAPH, 4, cache=True)
    kept = only_file(folder)
    for name, age in (("old", 7200), ("new", 0), ("of another time", -7200)):
        part = folder / f".{kept.name}.{name}"
        part.write_text("{")
        os.utime(part, (time.time() - age, time.time() - age))
    assert load_solution(Question(GRAPH, 4, "optimal", "highs", 60.0)) is not None
    store_solution(question(), answer(question()))
    assert [path.name for path in folder.glob(".*")] == [f".{kept.name}.new"]


def test_entries_from_a_future_that_a_clock_took_back_are_evicted_first(folder, monkeypatch):
    for budget, age in ((4, 50), (5, -1_000_000), (6, 10)):
        store_solution(question(budget=budget), judge(GRAPH, budget, "optimal", Answer(None, 17.0), 1.0))
        used = time.time() - age
        os.utime(entry_path("solution", question(budget=budget).key), (used, used))
    sizes = [entry.bytes for entry in cache_folder.entries("solution")]
    cache_folder.evict("solution", sum(sizes) - 1)
    assert [load_solution(question(budget=budget)) is not None for budget in (4, 5, 6)] == [True, False, True]


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_neither_ends_a_search_nor_loses_what_is_kept(jump, monkeypatch, folder):
    real, times = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + jump * (next(times) % 2))  # back and forth at every look
    solved = solve(GRAPH, 4, time_limit=30.0, cache=True)
    assert (solved.status, solved.limit) == (Status.OPTIMAL, "")
    assert 0.0 <= solved.seconds < 30.0
    begun = time.monotonic()
    assert solve(linear(40), 8, "checkmate-ilp", time_limit=0.5).limit.startswith("the time limit")
    assert time.monotonic() - begun < 30.0
    used = real() + jump
    os.utime(only_file(folder), (max(used, 0.0), max(used, 0.0)))
    cache_folder.evict("solution", cache_module.LARGEST)
    assert load_solution(Question(GRAPH, 4, "optimal", "highs", 30.0)) is not None


def test_a_folder_in_place_of_the_file_is_left_alone_and_said(folder):
    solve(GRAPH, 4, cache=True)
    path = only_file(folder)
    path.unlink()
    path.mkdir()
    with pytest.warns(RuntimeWarning, match=r"could not be kept in the cache folder .* nothing else is lost"):
        assert solve(GRAPH, 4, cache=True).cost == 26.0
    assert path.is_dir()


def test_a_full_disk_costs_nothing_but_a_warning(monkeypatch, folder):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        solution = solve(GRAPH, 4, cache=True)
    assert (solution.status, solution.cost) == (Status.OPTIMAL, 26.0)
    assert list(folder.iterdir()) == []  # not even half a file


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the device that is always full is one of Linux")
def test_a_disk_that_fills_up_in_the_middle_of_a_file_leaves_no_half_of_it(monkeypatch, folder):
    def to_the_full_device(path, content):
        path.touch()
        with open("/dev/full", "wb") as stream:
            stream.write(content)

    monkeypatch.setattr(Path, "write_bytes", to_the_full_device)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        assert solve(GRAPH, 4, cache=True).cost == 26.0
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_costs_nothing_but_a_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="REMAT_EXPLORER_CACHE"):
        assert solve(GRAPH, 4, cache=True).cost == 26.0
    assert cache_folder.entries() == []


def test_a_job_says_in_a_remark_why_its_solution_was_not_kept(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = SolveJob.start(GRAPH, 4, cache=True)
        assert job.wait(60)
    assert job.solution().cost == 26.0
    (remark,) = job.remarks
    assert "could not be kept in the cache folder" in remark


def test_a_job_finds_what_an_earlier_one_found_without_a_process():
    job = SolveJob.start(GRAPH, 4, cache=True)
    assert job.wait(60)
    again = SolveJob.start(GRAPH, 4, cache=True)
    assert again.done
    assert (job.from_cache, again.from_cache) == (False, True)
    assert again._worker is None
    assert [(progress.doing, progress.cost) for progress in again.poll()] == [("found in the cache", 26.0)]
    assert again.solution().to_document() == job.solution().to_document()
    again.cancel()
    assert again.solution().status == Status.OPTIMAL


def test_the_longest_unused_solutions_go_when_the_cache_is_full(monkeypatch, folder):
    for budget in (10, 11, 12):
        store_solution(question(budget=budget), answer(question(budget=budget)))
        path = cache_folder.entry_path("solution", question(budget=budget).key)
        os.utime(path, (budget, budget))
    (folder / "profile-of-someone.json").write_text("{}")
    assert load_solution(question(budget=10)) is not None  # and is thereby the last used
    sizes = [entry.bytes for entry in cache_folder.entries("solution")]
    monkeypatch.setattr(cache_module, "LARGEST", sum(sizes))
    store_solution(question(budget=13), answer(question(budget=13)))
    kept = [budget for budget in (10, 11, 12, 13) if load_solution(question(budget=budget))]
    assert kept == [10, 12, 13]
    assert (folder / "profile-of-someone.json").exists()


def test_clearing_removes_what_is_ours_and_nothing_else(folder):
    store_solution(question(), answer(question()))
    for name in ("profile-0.json", ".solution-0.json.half", "notes.txt"):
        (folder / name).write_text("{}")
    removed = cache_folder.clear("solution")
    assert [entry.kind for entry in removed] == ["solution"]
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "profile-0.json"]
    cache_folder.clear()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_the_smallest_budget_is_looked_for_once(monkeypatch, folder):
    graph, same = linear(9), linear(9)
    first = solve(graph, "smallest", cache=True)
    monkeypatch.setattr(smallest_known, "minimum_budget", None)
    kept = solve(same, "smallest", cache=True)
    assert (kept.budget, kept.cost) == (first.budget, first.cost)
    for path in folder.iterdir():  # what a schedule needs is not believed, but counted
        document = json.loads(path.read_text())
        document["solution"]["peak"] -= 1
        path.write_text(json.dumps(document))
    with pytest.raises(TypeError):
        solve(linear(9), "smallest", cache=True)


WRITERS = """
import os, random, signal, sys, time
from remat_explorer.cache_folder import cache_folder
from remat_explorer.instances import linear
from remat_explorer.solvers.base import Answer
from remat_explorer.solvers.cache import Question, entry_path, load_solution, store_solution
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.solve import judge

graph, draw, kept = linear(60), random.Random(0), 0
schedule = checkpoint_all(graph)
def asked(i, seconds): return Question(graph, 1000 + i % 3, "checkmate-ilp", "highs", seconds)
def write_for_ever(begun):
    for i in range(10**6):
        question = asked(i, float(i))
        problem = store_solution(question, judge(graph, question.budget, question.strategy, Answer(schedule, 1.0), 0.1))
        if problem:
            print(problem, flush=True)
        os.write(begun, b"x")
for kill in range(int(sys.argv[1])):
    reading, begun = os.pipe()
    writers = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            write_for_ever(begun)
        writers.append(pid)
    os.read(reading, 1)
    time.sleep(draw.uniform(0, 0.02))
    for pid in writers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(reading), os.close(begun)
    for i in range(3):
        path = entry_path("solution", asked(i, 0.0).key)
        there = path.exists()
        found = load_solution(asked(i, 0.0))
        if there != (found is not None) or found and (found.cost, found.lower_bound) != (schedule.cost, 1.0):
            print("kill", kill, "left", path.read_text() if path.exists() else "what was not believed", flush=True)
        kept += there
halves = [path for path in cache_folder().iterdir() if path.name.startswith(".")]
print(kept, len(halves))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forked, so that there is time for many")
@pytest.mark.parametrize("kills", [20, pytest.param(100, marks=pytest.mark.thorough)])
def test_two_writers_that_are_killed_at_any_time_leave_whole_files(folder, kills):
    ran = subprocess.run([sys.executable, "-c", WRITERS, str(kills)], capture_output=True, text=True, check=True)
    kept, halves = map(int, ran.stdout.split())  # and not a word of anything that is wrong
    assert kept > kills
    for path in folder.glob(".*"):
        os.utime(path, (0, 0))
    assert len(list(folder.glob(".*"))) == halves
    cache_folder.evict("solution", cache_module.LARGEST)
    assert list(folder.glob(".*")) == []


@pytest.fixture
def finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The optimal strategy has no time to find a schedule."""
    weak = dataclasses.replace(STRATEGIES["optimal"], run=lambda *given: Answer(None, 15.0), improve=None)
    monkeypatch.setitem(STRATEGIES, "optimal", weak)


@pytest.mark.parametrize("kept", [(5, "optimal"), (6, "optimal"), (5, "griewank")])
def test_a_solve_is_never_dearer_than_what_was_kept_for_another_question(kept, request):
    first = solve(GRAPH, kept[0], kept[1], time_limit=20, cache=True)
    assert first.peak is not None
    request.getfixturevalue("finds_nothing")
    heard: list[Status | float | None] = []
    again = solve(GRAPH, 7, cache=True, on_progress=lambda progress: heard.append(progress.cost))
    assert (again.status, again.cost, again.lower_bound) == (Status.FEASIBLE, first.cost, 15.0)
    assert heard[0] == first.cost
    assert again.limit.endswith("with no better schedule than one that was known before")
    assert again.strategy == "optimal"


def test_the_papers_program_without_time_answers_with_what_is_kept_and_with_nothing_where_nothing_is():
    nothing = solve(GRAPH, 7, "checkmate-ilp", time_limit=0.0, cache=True)
    assert (nothing.status, nothing.schedule, nothing.lower_bound) == (Status.UNKNOWN, None, 17.0)
    first = solve(GRAPH, 5, cache=True)
    again = solve(GRAPH, 7, "checkmate-ilp", time_limit=0.0, cache=True)
    assert (again.status, again.strategy, again.cost) == (Status.FEASIBLE, "checkmate-ilp", first.cost)


def test_a_kept_schedule_that_needs_more_than_the_budget_is_not_taken(request):
    solve(GRAPH, 6, cache=True)
    request.getfixturevalue("finds_nothing")
    assert solve(GRAPH, 4, cache=True).schedule is None
    assert solve(dataclasses.replace(GRAPH, name="another"), 8, cache=True).schedule is None


def test_a_heuristic_stays_what_it_is_whatever_is_kept():
    alone = solve(GRAPH, 6, "checkmate-approx")
    solve(GRAPH, 5, cache=True)
    assert (alone.cost, solve(GRAPH, 6, "checkmate-approx", cache=True).cost) == (27.0, 27.0)
    assert solve(GRAPH, 5).cost == 22.0


def test_a_search_goes_on_from_what_a_shorter_one_found(monkeypatch):
    begun: list[float | None] = []
    real = STRATEGIES["optimal"]

    def improve(graph, budget, start, limits):
        begun.append(start.schedule.cost)
        assert real.improve is not None
        return real.improve(graph, budget, start, limits)

    asked = question(time_limit=1, budget=5)
    dear = solve(GRAPH, 4, cache=False).schedule
    store_solution(asked, judge(GRAPH, 5, "optimal", Answer(dear, 15.0), 1.0))
    monkeypatch.setitem(STRATEGIES, "optimal", dataclasses.replace(real, improve=improve))
    assert (solve(GRAPH, 5, cache=True).cost, begun) == (22.0, [26.0])


def test_what_is_kept_never_gets_dearer_and_its_bound_never_lower():
    cheap, dear = checkpoint_all(GRAPH), solve(GRAPH, 6).schedule
    store_solution(question(time_limit=2), judge(GRAPH, 10, "optimal", Answer(cheap, 14.0), 1.0))
    store_solution(question(time_limit=9), judge(GRAPH, 10, "optimal", Answer(dear, 15.0), 9.0))
    kept = load_solution(question(time_limit=9))
    assert kept is not None
    assert (kept.cost, kept.lower_bound, kept.status) == (17.0, 15.0, Status.FEASIBLE)
    store_solution(question(time_limit=2), judge(GRAPH, 10, "optimal", Answer(dear, 16.0), 2.0))
    kept = load_solution(question(time_limit=9))
    assert kept is not None
    assert (kept.cost, kept.lower_bound) == (17.0, 16.0)
