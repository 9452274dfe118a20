"""Solutions on disk: when a kept one answers, when it does not, and what a broken cache costs: nothing."""

import dataclasses
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remat_explorer import cache_folder
from remat_explorer.cache_folder import clear
from remat_explorer.instances import linear
from remat_explorer.quantities import SMALLEST
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import SolveJob, Sweep, solve
from remat_explorer.solvers import cache as cache_module
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.memory import minimum_budget as smallest_known
from remat_explorer.solvers.registry import STRATEGIES
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.solve import judge
from remat_explorer.solvers.solver_interface import Answer, checkpoint_all, checkpoint_all_peak
from remat_explorer.solvers.sweeps.sweep_points import KeptPoints
from tests.solvers.helpers import present
from tests.thorough import thorough_but

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

    instead(monkeypatch, run=counting)
    return ran


def question(time_limit: float = 60.0, budget: int = 10, threads: int = 1, **options) -> Question:
    return Question(GRAPH, budget, "optimal", "highs", time_limit, threads, options)


def answer(asked: Question, lower_bound: float | None = 15.0, seconds: float = 1.0) -> Solution:
    """A feasible solution, kept out of proof by its bound."""
    return judge(GRAPH, asked.budget, asked.strategy, Answer(checkpoint_all(GRAPH), lower_bound), seconds)


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def instead(patch: pytest.MonkeyPatch, **change) -> None:
    """Change the optimal strategy of this process."""
    patch.setitem(STRATEGIES, "optimal", dataclasses.replace(STRATEGIES["optimal"], **change))


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


@pytest.mark.parametrize("schedule", [checkpoint_all(GRAPH), None])
def test_an_unproven_answer_counts_only_if_its_search_had_as_much_time_and_as_many_threads(schedule):
    asked = question(time_limit=10, threads=2)
    assert store_solution(asked, judge(GRAPH, 10, "optimal", Answer(schedule, 15.0), 10.0)) == ""
    for seconds, threads, enough in ((10, 2, True), (5, 1, True), (10.1, 2, False), (10, 3, False)):
        assert (load_solution(question(seconds, threads=threads)) is not None) == enough


def test_what_is_proven_holds_for_any_time_limit():
    solve(GRAPH, 4, "checkpoint-all", cache=True)
    kept = present(load_solution(Question(GRAPH, 4, "checkpoint-all", "highs", 1e6)))
    assert (kept.status, kept.schedule, kept.lower_bound) == (Status.INFEASIBLE, None, None)
    store_solution(question(), answer(question(), 17.0))
    assert load_solution(question(time_limit=1e6, threads=3)) is not None


def test_a_shorter_search_does_not_replace_a_longer_one_but_a_proof_does_and_nothing_gets_worse():
    cheap, dear = checkpoint_all(GRAPH), solve(GRAPH, 6).schedule
    for seconds, schedule, bound, kept in (
        (2, cheap, 14.0, (17.0, 14.0, Status.FEASIBLE)),
        (9, dear, 15.0, (17.0, 15.0, Status.FEASIBLE)),
        (2, dear, 13.0, (17.0, 15.0, Status.FEASIBLE)),
        (2, dear, 16.0, (17.0, 16.0, Status.FEASIBLE)),
        (1, cheap, 17.0, (17.0, 17.0, Status.OPTIMAL)),
        (20, cheap, 14.0, (17.0, 17.0, Status.OPTIMAL)),
    ):
        store_solution(question(time_limit=seconds), judge(GRAPH, 10, "optimal", Answer(schedule, bound), 1.0))
        found = present(load_solution(question(time_limit=min(seconds, 9))))
        assert (found.cost, found.lower_bound, found.status) == kept


def test_a_search_that_was_cancelled_counts_only_as_long_as_it_ran(monkeypatch):
    instead(monkeypatch, run=lambda graph, budget, limits: Answer(checkpoint_all(graph), 15.0))  # after planning
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
def test_every_part_of_a_question_counts_and_so_does_the_version_of_the_package(other, monkeypatch):
    store_solution(question(), answer(question()))
    assert load_solution(question(1.0)) is not None
    assert load_solution(other) is None
    monkeypatch.setattr(cache_module, "__version__", "999.0")
    assert load_solution(question(1.0)) is None


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
        edited(status="best"),
        edited(lower_bound=18.0),
        edited(solver=None),
        edited(strategy="checkmate-ilp"),
        edited(R=None, S=None),
        without_a_checkpoint,
        lambda document: document["key"].update(budget=9),
        lambda document: document.update(time_limit="long"),
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


def test_a_forged_infeasible_is_solved_anew_where_something_may_fit(calls):
    """Written by our own means, so that nothing but the claim is wrong."""

    def forge(budget: int, strategy: str) -> Question:
        asked = Question(GRAPH, budget, strategy, "highs", 60.0)
        assert store_solution(asked, judge(GRAPH, budget, strategy, Answer(None, infeasible=True), 1.0)) == ""
        return asked

    assert load_solution(forge(4, "optimal")) is None
    forge(4, "optimal")
    assert (solve(GRAPH, 4, cache=True).status, calls) == (Status.OPTIMAL, [4])
    assert (solve(GRAPH, 4, cache=True).cost, calls) == (26.0, [4])
    assert load_solution(forge(3, "checkmate-ilp")) is None  # 3 bytes are the working set of an operation
    assert load_solution(forge(2, "checkmate-ilp")) is not None


@pytest.mark.parametrize("bound", [26.0, 22.5])
def test_a_forged_bound_is_solved_anew_where_a_schedule_costs_less(bound, calls):
    """A schedule of 26 is the optimum within 4 bytes; within 5 it is 22."""
    worse = solve(GRAPH, 4).schedule
    forged = judge(GRAPH, 5, "optimal", Answer(worse, bound), 1.0)
    store_solution(question(budget=5), forged)
    solved = solve(GRAPH, 5, cache=True, time_limit=60, threads=1)
    assert (solved.status, solved.cost, solved.lower_bound, calls) == (Status.OPTIMAL, 22.0, 22.0, [4, 5])


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe\x00", b"[" * 100_000])
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


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumps_neither_ends_a_search_nor_loses_what_is_kept(jump, monkeypatch, folder):
    real, times = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + jump * (next(times) % 2))  # back and forth at every look
    solved = solve(GRAPH, 4, time_limit=3600.0, cache=True)
    assert (solved.status, solved.limit) == (Status.OPTIMAL, "")
    assert 0.0 <= solved.seconds < 1e6
    assert solve(linear(40), 8, "checkmate-ilp", time_limit=0.5).limit.startswith("the time limit")
    used = real() + jump
    os.utime(only_file(folder), (max(used, 0.0), max(used, 0.0)))
    cache_folder.evict("solution", cache_module.LARGEST)
    assert load_solution(Question(GRAPH, 4, "optimal", "highs", 3600.0)) is not None


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


def test_a_folder_that_cannot_be_made_costs_nothing_but_a_warning_or_a_remark(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="REMAT_EXPLORER_CACHE"):
        assert solve(GRAPH, 4, cache=True).cost == 26.0
    assert cache_folder.entries() == []
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


def test_the_longest_unused_solutions_go_when_the_cache_is_full_and_first_those_from_a_future(monkeypatch, folder):
    now = time.time()
    for budget, used in ((10, 10), (11, 11), (12, 12), (14, now + 1e6)):  # the last by a clock that was set back
        store_solution(question(budget=budget), answer(question(budget=budget)))
        os.utime(cache_folder.entry_path("solution", question(budget=budget).key), (used, used))
    (folder / "profile-of-someone.json").write_text("{}")
    assert load_solution(question(budget=10)) is not None  # and is thereby the last used
    sizes = [entry.bytes for entry in cache_folder.entries("solution")]
    monkeypatch.setattr(cache_module, "LARGEST", sum(sizes[:3]))
    store_solution(question(budget=13), answer(question(budget=13)))
    kept = [budget for budget in (10, 11, 12, 13, 14) if load_solution(question(budget=budget))]
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


def test_the_smallest_budget_is_looked_for_once_and_what_is_kept_of_it_is_counted(monkeypatch, folder):
    first = solve(linear(9), "smallest", cache=True)
    with monkeypatch.context() as patch:
        patch.setattr(smallest_known, "minimum_budget", None)
        kept = solve(linear(9), "smallest", cache=True)
    assert (kept.budget, kept.cost) == (first.budget, first.cost)
    peak = checkpoint_all_peak(GRAPH)
    forged = Solution(GRAPH, SMALLEST, Status.FEASIBLE, peak, checkpoint_all(GRAPH), None, 0.0)
    store_solution(Question(GRAPH, peak, SMALLEST, "", 0.0), forged)
    assert smallest_known.smallest_known(GRAPH, cache=True) == 3


WRITERS = """
import os, random, signal, sys, time
from remat_explorer.cache_folder import cache_folder
from remat_explorer.instances import linear
from remat_explorer.solvers.solver_interface import Answer, checkpoint_all
from remat_explorer.solvers.cache import Question, load_solution, store_solution
from remat_explorer.solvers.solve import judge

graph, draw, kept = linear(60), random.Random(0), 0
answer = Answer(checkpoint_all(graph), 1.0)
def asked(i, seconds): return Question(graph, 1000 + i % 3, "checkmate-ilp", "highs", seconds)
def write_for_ever(begun):
    for i in range(10**6):
        kept = judge(graph, 1000 + i % 3, "checkmate-ilp", answer, 0.1)
        print(end=store_solution(asked(i, float(i)), kept), flush=True)  # what went wrong, if anything did
        os.write(begun, b"x")
for kill in range(int(sys.argv[1])):
    reading, begun = os.pipe()
    writers = [os.fork() or write_for_ever(begun) for _ in range(2)]
    os.read(reading, 1)
    time.sleep(draw.uniform(0, 0.02))
    for pid in writers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(reading), os.close(begun)
    there = sum(path.name[0] != "." for path in cache_folder().iterdir())
    found = [solution for i in range(3) if (solution := load_solution(asked(i, 0.0)))]
    if len(found) != there or any((one.cost, one.lower_bound) != (answer.schedule.cost, 1.0) for one in found):
        print("after", kill, "kills", there, "files are there, and", len(found), "are believed", flush=True)
    kept += there
print(kept, sum(path.name[0] == "." for path in cache_folder().iterdir()))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the writers are forked, so that there is time for many")
@pytest.mark.parametrize("kills", thorough_but([10, 100], 10))
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
    instead(monkeypatch, run=lambda *given: Answer(None, 15.0), improve=None)


@pytest.mark.parametrize("kept", [(5, "optimal"), (5, "griewank")])
def test_a_solve_is_never_dearer_than_what_was_kept_for_another_question(kept, request):
    first = solve(GRAPH, kept[0], kept[1], time_limit=20, cache=True)
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


def test_a_kept_schedule_that_needs_more_than_the_budget_is_not_taken_and_a_heuristic_stays_what_it_is(request):
    cost = solve(GRAPH, 6, "checkmate-approx").cost
    solve(GRAPH, 5, cache=True)
    assert solve(GRAPH, 6, "checkmate-approx", cache=True).cost == cost == 27.0
    request.getfixturevalue("finds_nothing")
    assert solve(GRAPH, 4, cache=True).schedule is None
    assert solve(dataclasses.replace(GRAPH, name="another"), 8, cache=True).schedule is None


def test_a_search_goes_on_from_what_a_shorter_one_found(monkeypatch):
    begun, real = [], present(STRATEGIES["optimal"].improve)

    def improve(graph, budget, start, limits):
        begun.append(start.schedule.cost)
        return real(graph, budget, start, limits)

    asked = question(time_limit=1, budget=5)
    dear = solve(GRAPH, 4, cache=False).schedule
    store_solution(asked, judge(GRAPH, 5, "optimal", Answer(dear, 15.0), 1.0))
    instead(monkeypatch, improve=improve)
    assert (solve(GRAPH, 5, cache=True).cost, begun) == (22.0, [26.0])


class Nobody(ThreadPoolExecutor):
    """An executor that must not be asked."""

    def submit(self, fn, /, *args, **kwargs):
        raise AssertionError("there was nothing to do")


def swept(budgets, executor=None, cache=True):
    how = {"cache": cache, "time_limit": 60.0}
    with executor or ThreadPoolExecutor(1) as threads, Sweep(GRAPH, budgets, executor=threads, **how) as run:
        list(run)
    return run


def proven(budget: int) -> bool:
    return present(load_solution(question(budget=budget))).status == Status.OPTIMAL


def test_a_sweep_that_was_made_before_needs_no_worker(folder):
    assert swept([4], cache=False).from_cache == 0
    assert not folder.exists()
    first = swept([2, 4, 10])
    again = swept([2, 4, 10], Nobody(1))
    assert (first.from_cache, again.from_cache) == (0, 3)
    assert [s.cost for s in again.frontier().solutions] == [s.cost for s in first.frontier().solutions]
    assert [str(s.status) for s in again.frontier().solutions] == ["infeasible", "optimal", "optimal"]


def test_solve_and_sweep_know_of_each_other():
    solve(GRAPH, 4, cache=True)
    assert swept([4, 6]).from_cache == 1
    heard = []
    solve(GRAPH, 6, cache=True, on_progress=lambda progress: heard.append(progress.doing))
    assert heard == ["found in the cache"]


def test_a_kept_point_that_had_less_time_is_searched_again_and_a_better_one_is_kept():
    store_solution(question(60.0), answer(question()))
    assert swept([10]).from_cache == 1
    clear("solution")
    store_solution(question(1.0), answer(question()))
    assert swept([10]).from_cache == 0
    assert proven(10)


def test_a_point_is_kept_with_what_its_own_strategy_proved():
    """Checkpoint-all proves that nothing is cheaper; problem (9) with a schedule alone does not."""
    store, everything = KeptPoints(GRAPH, "highs", 5.0, 1), checkpoint_all(GRAPH)
    alone = judge(GRAPH, 10, "checkmate-ilp", Answer(everything), 1.0)
    assert store.store([alone, judge(GRAPH, 10, "optimal", Answer(everything, 17.0), 1.0)], [], ended=True) == []
    assert proven(10)
    found = present(load_solution(Question(GRAPH, 10, "checkmate-ilp", "highs", 5.0)))
    assert (found.status, found.lower_bound) == (Status.FEASIBLE, None)


def test_lost_points_are_not_kept_and_others_with_the_time_that_they_had():
    store, poor = KeptPoints(GRAPH, "highs", 5.0, 1), answer(question())
    store.store([poor], [("optimal", 10)], ended=False)
    assert load_solution(question(0.5)) is None
    store.store([poor], [], ended=False)
    assert [load_solution(question(seconds)) is not None for seconds in (0.5, 2.0)] == [True, False]
