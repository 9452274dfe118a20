"""Input that once ended in a traceback: each line leaves with 64, and quotes what it is about."""

import inspect
import json
import os
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import ArgumentError, RematError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear
from remat_explorer.solvers import Frontier, solve, sweep
from remat_explorer.solvers.base import checkpoint_all
from remat_explorer.solvers.solution import Solution, Status
from tests.project.shell import run

HUGE = str(2**63 - 1)
TOO_MUCH = "is more than 8192 TiB"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve", "CHAIN", "--budget", "1e400"], f"'1e400' {TOO_MUCH}"),
        (["solve", "CHAIN", "--budget", "1e400%"], f"'1e400%' {TOO_MUCH}"),
        (["solve", "CHAIN", "--budget", "1e308 TiB"], f"'1e308 TiB' {TOO_MUCH}"),
        (["solve", "CHAIN", "--budget", HUGE], f"'{HUGE}' {TOO_MUCH}"),
        (["sweep", "CHAIN", "--budgets", f"4,{HUGE}"], f"'{HUGE}' {TOO_MUCH}"),
        (["sweep", "CHAIN", "--budgets", "1e400%"], f"'1e400%' {TOO_MUCH}"),
        (["ablation", "CHAIN", "--budgets", f"{HUGE},"], f"'{HUGE}' {TOO_MUCH}"),
        (["max-batch", "CHAIN", "--memory", "1e400"], f"'1e400' {TOO_MUCH}"),
        (["max-batch", "CHAIN", "--memory", HUGE], f"'{HUGE}' {TOO_MUCH}"),
        (["solve", "CHAIN", "--budget", "1" * 100_000 + "!"], "is not a number of bytes"),
        (["solve", "CHAIN", "--budget", "4", "--option=--"], "--option: '--' is no"),
        (["solve", "CHAIN", "--budget=--"], "'--' is no"),
        (["sweep", "CHAIN", "--budgets", "1" * 5000], "is more than 8192 TiB"),
        (["sweep", "CHAIN", "--budgets", "1000000000"], "1000000000 is not a number of budgets; give 1 to 1000"),
        (["max-batch", "CHAIN", "--memory", "99", "--overhead-limit", "1e400%"], "'1e400%' is no limit"),
        (["minimum-budget", "CHAIN", "--overhead", "1e400"], "'1e400' is no overhead"),
        (["app", "--port", "65536"], "'65536' is more than 65535"),
        (["solve", "CHAIN", "--budget", "4", "--threads", "1" * 5000], "is more than 1024"),
        (["solve", "CHAIN", "--budget", "4", "-o", "FOLDER"], "it is a folder, not a regular file"),
        (["solve", "CHAIN", "--budget", "4", "-o", "/dev/null"], "'/dev/null': it is a device, not a regular file"),
        (["capture", "mlp", "-o", "/dev/full"], "'/dev/full': it is a device, not a regular file"),
        (["show", "/dev/zero"], "'/dev/zero': it is a device, not a regular file"),
        (["show", "PIPE"], "it is a pipe, not a regular file"),
        (["max-batch", "CHAIN", "--memory", "99", "--larger", "PIPE"], "it is a pipe, not a regular file"),
    ],
)
def test_an_argument_that_means_nothing_is_quoted(capsys, chain, tmp_path, arguments, message):
    os.mkfifo(tmp_path / "pipe.json")
    places = {"CHAIN": chain, "FOLDER": str(tmp_path), "PIPE": str(tmp_path / "pipe.json")}
    code, out, err = run(capsys, *[places.get(argument, argument) for argument in arguments])
    assert (code, out) == (64, "")
    assert message in err


def changed(path: str, entry: object) -> str:
    """The graph file of a chain with one entry changed: ``path`` names keys and numbers with dots between them."""
    document = json.loads(dump_graph(linear(2)))
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place = document
    for key in way:
        place = place[key]
    place[last] = entry
    return json.dumps(document)


def overflowing() -> str:
    document = json.loads(dump_graph(linear(2)))
    for k in (0, 1):
        document["operations"][k]["implementations"][0]["cost"] = 1e308
    return json.dumps(document)


def wrapping() -> str:
    document = json.loads(dump_graph(linear(2)))
    for v in (0, 1):
        document["values"][v]["bytes"] = 2**52
    return json.dumps(document)


COST, WAY = "operations.0.implementations.0.cost", "operations.0.implementations.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (overflowing(), "too large to be added up, with 5 runs of each operation: 'v0' 1e+308, 'v1' 1e+308"),
        (wrapping(), "more than 8192 TiB"),
        ("[" * 200_000 + "]" * 200_000, "nested too deep"),
        (changed("values.0", json.loads("[" * 900 + "]" * 900)), "value 0 is not a JSON object: [[["),
        ('{"format": NaN}', "NaN, which is no number in JSON"),
        ("1" * 5000, "not a JSON file"),
        ("", "not a JSON file"),
        (changed("values.0.bytes", 2**63), "9223372036854775808 bytes, more than 8192 TiB"),
        (changed("values.0.bytes", 10**400), "more than 8192 TiB"),
        (changed(f"{WAY}.workspace", 2**63), "9223372036854775808 bytes, more than 8192 TiB"),
        (changed("resident_bytes", 2**63), "9223372036854775808 bytes, more than 8192 TiB"),
        (changed(COST, 10**400), "operation 0 ('v0'): the cost is not a number of at least 0: 1000"),
        (changed(COST, 1e308), "too large to be added up, with 5 runs of each operation: 'v0' 1e+308"),
        (changed(COST, True), "the cost is not a number of at least 0: true"),
        (changed(f"{WAY}.tolerance", 10**400), "the tolerance is not a number of at least 0: 1000"),
        (changed(f"{WAY}.tolerance", "low"), 'the tolerance is not a number of at least 0: "low"'),
        (changed("name", "\ud800"), r'half of a surrogate pair, which is no text: "\ud800"'),
        (changed("values.0.name", "a\udc80"), r'half of a surrogate pair, which is no text: "a\udc80"'),
        (changed("operations.0.name", "\ud800"), r'half of a surrogate pair, which is no text: "\ud800"'),
        (changed("operations.0.phase", []), "phase []"),
        (changed("version", {}), "version {}"),
        (changed("format", [[]]), "the format is none of ours"),
        (changed(f"{WAY}.inputs", [10**30]), "names value 1000000000000000000000000000000 of 5"),
        (changed("capture", {"implementations": [[]]}), "'contract'"),
    ],
)
def test_a_graph_file_that_holds_no_graph_is_quoted(capsys, tmp_path, text, message):
    path = tmp_path / "graph.json"
    path.write_text(text)
    code, out, err = run(capsys, "solve", str(path), "--budget", "60%")
    assert (code, out) == (64, "")
    assert message in err


@pytest.mark.parametrize(
    "budget", [1e400, "1e400", "1e400%", 10**400, 10**5000, 2**63 - 1, float("nan"), [], {}, b"4"], ids=type
)
def test_the_python_interface_says_the_same_of_a_budget(budget):
    for ask in (lambda: solve(linear(2), budget), lambda: sweep(linear(2), [budget])):
        with pytest.raises(RematError):
            ask()


def test_a_kept_solution_with_a_number_beyond_all_others_is_solved_anew(capsys, chain, tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    assert run(capsys, "solve", chain, "--budget", "4")[0] == 0
    (kept,) = tmp_path.glob("solution-*.json")
    for key in ("budget", "cost", "lower_bound", "seconds"):
        document = json.loads(kept.read_text())
        document["solution"][key] = 10**400
        kept.write_text(json.dumps(document))
        code, out, err = run(capsys, "cache", "list")
        assert (code, err) == (0, "")
        assert ("(unreadable)" in out) == (key in ("budget", "cost"))
        assert run(capsys, "solve", chain, "--budget", "4", "--json")[0] == 0


def test_a_search_without_a_time_limit_is_kept_as_json_that_everybody_reads(capsys, chain, tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    assert run(capsys, "solve", chain, "--budget", "4", "--time-limit", "inf")[0] == 0
    code, out, _ = run(capsys, "cache", "list", "--json")
    assert code == 0
    assert json.loads(out, parse_constant=pytest.fail)["solutions"][0]["time_limit"] is None
    assert json.loads(run(capsys, "solve", chain, "--budget", "4", "--json")[1])["from_cache"]


def test_a_sweep_file_without_a_list_of_points_is_quoted(tmp_path):
    graph = linear(2)
    whole = Frontier(graph, (Solution(graph, "optimal", Status.OPTIMAL, 9, checkpoint_all(graph), 5.0, 0.0),))
    for points in ({}, 0, None, "points", [[]], [None]):
        path = Path(tmp_path / "sweep.json")
        path.write_text(json.dumps(whole.to_document() | {"points": points}))
        with pytest.raises(RematError, match=r"is not a list|is not a JSON object"):
            Frontier.load(path, graph)
    path.write_text(json.dumps(whole.to_document() | {"points": []}))
    assert str(Frontier.load(path, graph)).startswith("strategy")


MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
INPUTS = (torch.ones(3, 4),)
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ask", "argument"),
    [
        (lambda: rx.solve(5, 4), "graph=5"),  # pyright: ignore
        (lambda: rx.solve(MODEL, 4), "graph=Sequential("),  # pyright: ignore
        (lambda: rx.solve(linear(2), 4, strategy=5), "strategy=5"),  # pyright: ignore
        (lambda: rx.solve(linear(2), 4, solver=[]), "solver=[]"),  # pyright: ignore
        (lambda: rx.solve(linear(2), 4, time_limit="3"), "time_limit='3'"),  # pyright: ignore
        (lambda: rx.solve(linear(2), 4, time_limit=NAN), "time_limit=nan"),
        (lambda: rx.solve(linear(2), 4, time_limit=-1), "time_limit=-1"),
        (lambda: rx.solve(linear(2), 4, threads=-1), "threads=-1"),
        (lambda: rx.solve(linear(2), 4, threads=10**9), "threads=1000000000"),
        (lambda: rx.solve(linear(2), 4, on_progress=5), "on_progress=5"),  # pyright: ignore
        (lambda: rx.sweep(linear(2), None), "budgets=None"),  # pyright: ignore
        (lambda: rx.sweep(linear(2), b"4"), "budgets=b'4'"),  # pyright: ignore
        (lambda: rx.sweep(linear(2), 3, strategies=5), "strategies=5"),  # pyright: ignore
        (lambda: rx.sweep(linear(2), 3, strategies=["optimal", 5]), "strategies[1]=5"),  # pyright: ignore
        (lambda: rx.sweep(linear(2), 3, threads=0), "threads=0"),
        (lambda: rx.sweep(linear(2), 3, time_limit=NAN), "time_limit=nan"),
        (lambda: rx.Sweep(linear(2), 3, workers=-1), "workers=-1"),
        (lambda: rx.minimum_budget(linear(2), NAN), "seconds=nan"),
        (lambda: rx.minimum_budget(linear(2), INFINITE), "seconds=inf"),
        (lambda: rx.ablation(linear(2), 3, time_limit=-1), "time_limit=-1"),
        (lambda: rx.memory_at_overhead(linear(2), 1.2, threads=0), "threads=0"),
        (lambda: rx.max_batch(linear(2), 99, larger=linear(2), batches=(0, 0)), "batches[0]=0"),
        (lambda: rx.relax(None, 4), "graph=None"),  # pyright: ignore
        (lambda: rx.linear("8"), "layers='8'"),  # pyright: ignore
        (lambda: rx.Graph.load(None), "path=None"),  # pyright: ignore
        (lambda: linear(2).save(5), "path=5"),  # pyright: ignore
        (lambda: rx.capture(MODEL, INPUTS, kwargs=5), "kwargs=5"),  # pyright: ignore
        (lambda: rx.capture(MODEL, INPUTS, optimizer=5), "optimizer=5"),  # pyright: ignore
        (lambda: rx.compile(None, "80%"), "model=None"),  # pyright: ignore
        (lambda: rx.report(None, "report.html"), "solution=None"),  # pyright: ignore
        (lambda: rx.rematerialize(MODEL, INPUTS, "80%"), "kwargs='80%'"),  # pyright: ignore
        (lambda: rx.fit("mlp", "2 GB", time_limit=NAN), "time_limit=nan"),
        (lambda: rx.Explorer(5), "model=5"),
        (lambda: rx.Explorer(graph=5), "graph=5"),  # pyright: ignore
        (lambda: rx.Graph("g", 5, CHAIN.operations), "values=5"),  # pyright: ignore
        (lambda: rx.Schedule(None, [], []), "graph=None"),  # pyright: ignore
        (lambda: rx.Plan(CHAIN, 5), "statements=5"),  # pyright: ignore
        (lambda: rx.Plan.from_sequence(CHAIN, "x"), "sequence='x'"),  # pyright: ignore
        (lambda: rx.Solution(5, "optimal", Status.FEASIBLE, 4, None, None, 0.0), "graph=5"),  # pyright: ignore
        (lambda: rx.page(KEPT, measurement=5), "measurement=5"),  # pyright: ignore
        (lambda: rx.report(KEPT, "report.html", history=[5]), "history[0]=5"),  # pyright: ignore
        (lambda: rx.profile(CHAIN, MODEL, INPUTS, repeats=10**19), f"repeats={10**19}"),
        (lambda: rx.sweep(CHAIN, 2, workers=10**19), f"workers={10**19}"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_quoted_and_named(ask, argument):
    with pytest.raises(ArgumentError) as refused:
        ask()
    assert argument in str(refused.value)
    assert "; it takes " in str(refused.value)


@pytest.mark.parametrize("budget", [None, [], "much", -5, NAN])
def test_a_budget_that_is_none_is_refused_before_anything_is_compiled(budget):
    for ask in (lambda: rx.compile(MODEL, budget), lambda: rx.partitioner(budget)):
        with pytest.raises(RematError):
            ask()


def test_numbers_of_numpy_lists_for_tuples_and_limits_without_an_end_are_taken():
    assert rx.linear(np.int64(3)).n == 7  # pyright: ignore
    graph = rx.capture(MODEL, [*INPUTS], loss=torch.sum)  # pyright: ignore
    assert rx.profile(graph, MODEL, INPUTS, loss=torch.sum, repeats=1, device=torch.device("cpu")).n == graph.n
    limits: dict[str, Any] = {"time_limit": np.float32(5), "threads": np.int64(1)}
    assert rx.solve(graph, "100%", **limits).schedule is not None
    assert rx.solve(linear(2), "100%", time_limit=INFINITE).schedule is not None


def test_an_explorer_opens_a_graph_that_is_its_first_argument():
    explorer = rx.Explorer(linear(2), improve=False, sweep=False)
    try:
        assert explorer.wait(60)
        assert explorer.state.graph is not None
        assert explorer.state.graph.name == "linear2"
    finally:
        explorer.close()
    with pytest.raises(ArgumentError, match="two graphs"):
        rx.Explorer(linear(2), graph=linear(2))


def test_a_chain_too_long_to_be_made_is_refused():
    with pytest.raises(RematError, match="too long; give at most"):
        linear(10**30)


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize(("size", "cost"), [(1, 1), (0, 1), (1, 0), (0, 0)])
def test_a_graph_of_one_operation_has_a_schedule_a_smallest_budget_a_curve_and_a_page(tmp_path, phase, size, cost):
    graph = Graph("one", (Value("v", size),), (operation("v", phase, [], [0], cost),))
    assert rx.solve(graph, "100%").status is Status.OPTIMAL
    assert str(rx.minimum_budget(graph)).count("100% of keeping everything") == 1
    curve = rx.sweep(graph, 3, executor=ThreadPoolExecutor(1), time_limit=1)
    assert curve.points
    assert rx.save_page(curve, tmp_path / "curve.html").exists()
    assert rx.save_page(rx.solve(graph, "100%"), tmp_path / "solution.html").exists()


WRONG = (None, 5, "x", [], {}, object(), NAN, -1, 10**19, b"x", [object()])
INNER = {  # what searches ask a million times: they raise what a tuple or an array raises
    "Graph.inputs", "Graph.outputs", "Graph.heir", "Schedule.computed_in", "Schedule.implementations_in",
    "Schedule.implementations_of", "Schedule.retained_into", "Schedule.stages_of",
}  # fmt: skip
CHAIN = rx.linear(3)
SCHEDULE = checkpoint_all(CHAIN)
KEPT = Solution(CHAIN, "optimal", Status.OPTIMAL, 9, SCHEDULE, SCHEDULE.cost, 0.0)
FRONTIER = Frontier(CHAIN, (KEPT,))
SUITABLE: dict[str, Any] = {  # arguments that a call needs, or that keep it short
    "graph": CHAIN, "budget": "100%", "path": "file.json", "time_limit": 0.2, "budgets": 2, "model": MODEL,
    "args": INPUTS, "solution": KEPT, "schedule": SCHEDULE, "memory": "1 GiB", "overhead": 1.5, "name": "mlp",
    "layers": 3, "seconds": 0.2, "R": SCHEDULE.R, "S": SCHEDULE.S, "workers": 1, "repeats": 1, "stages": 7,
    "computations": SCHEDULE.computations, "retained": SCHEDULE.retained, "sequence": SCHEDULE.sequence,
    "values": CHAIN.values, "operations": CHAIN.operations, "statements": (),
    "statement": rx.Plan.of(SCHEDULE).statements[0],
    "strategy": "optimal", "status": Status.FEASIBLE, "lower_bound": None, "solutions": (KEPT,), "kind": "masks",
    "stage": 0, "value": 0, "batches": (1, 2), "larger": None,
}  # fmt: skip


def arguments_of(call: Any) -> list[inspect.Parameter]:
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return [argument for argument in inspect.signature(call).parameters.values() if argument.kind not in kinds]


def public_calls(explorer: Any) -> dict[str, Any]:
    """Every public function, and every public method of a public class, by its name."""
    calls = {"models.load": rx.models.load, "models.published_size": rx.models.published_size}
    objects = (CHAIN, KEPT, SCHEDULE, FRONTIER, rx.Plan.of(SCHEDULE))
    made = {type(one).__name__: one for one in objects}
    for name in {*rx.__all__} - {"models"}:
        public = getattr(rx, name)
        if not isinstance(public, type) or name in ("Graph", "Plan", "Schedule", "Solution"):
            calls[name] = public
        if isinstance(public, type) and name != "Explorer":
            for method, found in vars(public).items():
                if not method.startswith("_") and isinstance(found, FunctionType | staticmethod | classmethod):
                    if isinstance(found, FunctionType) and name not in made:
                        continue
                    calls[f"{name}.{method}"] = getattr(made.get(name, public), method)
    for kind in rx.Explorer.__mro__:
        if kind.__module__.startswith("remat_explorer"):
            for method, found in vars(kind).items():
                if not method.startswith("_") and isinstance(found, FunctionType):
                    calls[f"Explorer.{method}"] = getattr(explorer, method)
    return {name: call for name, call in calls.items() if name not in INNER}


def complaint(call: Any, given: dict[str, Any], wrong: Any) -> str:
    """What is wrong with what a call says of a wrong argument; "" if it takes it, or refuses it in words."""
    try:
        call(**given)
    except RematError:
        return ""
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        said = (
            isinstance(error, TypeError | ValueError)
            and "remat_explorer" in last.filename
            and repr(wrong) in str(error)
        )
        return "" if said else f"{type(error).__name__}: {error} (line {last.lineno} of {last.filename})"
    return ""


@pytest.mark.thorough
def test_no_public_call_answers_a_wrong_argument_with_an_error_that_is_not_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explorer = rx.Explorer(CHAIN, improve=False, sweep=False)
    try:
        assert explorer.wait(60)
        asked, bad = 0, []
        for name, call in public_calls(explorer).items():
            arguments = arguments_of(call)
            needed = [each.name for each in arguments if each.default is each.empty]
            short = [each.name for each in arguments if each.name in ("time_limit", "workers", "repeats", "seconds")]
            usual = {each: SUITABLE.get(each) for each in (*needed, *short)}
            for argument in arguments:
                for wrong in WRONG:
                    asked += 1
                    if said := complaint(call, usual | {argument.name: wrong}, wrong):
                        bad.append(f"{name}({argument.name}={wrong!r:.40}): {said}")
        assert bad == []
        assert asked > 2000
    finally:
        explorer.close()
    assert threading.active_count() < 50


def test_models_take_devices_of_torch():
    assert rx.models.load("mlp", batch=2, device=torch.device("cpu")).graph.n == 34
    with pytest.raises(ArgumentError, match="device=5"):
        rx.models.load("mlp", device=5)  # pyright: ignore
