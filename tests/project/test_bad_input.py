"""Input that means nothing, to commands and to Python: it is refused, and quoted, and leaves no traceback."""

import inspect
import json
import os
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch

import remat_explorer as rx
from remat_explorer.errors import ArgumentError, RematError
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.instances import linear
from remat_explorer.solution_summary import Status
from remat_explorer.solvers import Frontier, solve, sweep
from remat_explorer.solvers.solution import Solution
from remat_explorer.solvers.solver_interface import checkpoint_all
from tests.project.shell import run

pytestmark = pytest.mark.usefixtures("kept_workers")

HUGE = str(2**63 - 1)
TOO_MUCH = "is more than 8192 TiB"
OPTION = ("solve", "CHAIN", "--budget", "4", "--option")
ILP = ("--strategy", "checkmate-ilp")
RUN = ("run", "mlp", "--batch", "64", "--budget", "100%", "--device", "cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explode"], "invalid choice: 'explode'"),
        (["solve", "CHAIN"], "required: --budget"),
        (["policy", "--budget", "60%"], "the following arguments are required: MODEL"),
        (["solve", "vg16", "--budget", "60%"], "unknown model 'vg16'; did you mean 'vgg16'"),
        (["solve", "missing.json", "--budget", "4"], "cannot read 'missing.json'"),
        (["lab", "missing.ipynb"], "'missing.ipynb'"),
        (["app", "vgg16"], "'vgg16' is no model file"),
        (["app", "missing.py:make_model"], "cannot read 'missing.py'"),
        (["capture", "CHAIN", "-o", "x.json"], "is a graph file, which has no model to run or capture"),
        (["capture", "mlp", "-o", "x.json", "--costs", "A10"], "unknown device 'A10'; did you mean 'A100'"),
        (["capture", "vgg16", "--sequence", "16", "-o", "x.json"], "'vgg16' takes no sequences"),
        (["capture", "mlp", "--implementations", "mask", "-o", "x.json"], "unknown kind of implementations 'mask'"),
        (["run", "CHAIN", "--budget", "4"], "give a model's name or path/to/file.py:function"),
        (["run", "mlp", "--budget", "90%", "--device", "gpu7"], "'gpu7' is not a device"),
        ([*RUN, "--snapshot", "snapshot.pickle"], "memory snapshots on CUDA only"),
        (["report", "CHAIN", "--budget", "4", "-o", "x", "--execute"], "is a graph file, which has no model to run"),
        (["show", "CHAIN", "--costs", "A100"], "--costs A100 does not apply to"),
        (["solve", "CHAIN", "--budget", "4", "--batch", "2"], "a graph file has its sizes and costs already"),
        (["solve", "CHAIN", "--budget", "4", "--no-contract"], "--no-contract does not apply to"),
        (["solve", "CHAIN", "--budget", "4", "--implementations", "masks"], "--option implementations="),
        (["solve", "CHAIN", "--budget", "4", "--offload", "fast"], "'fast' is no bandwidth; write \"25 GB/s\""),
        (["solve", "CHAIN", "--budget", "4", "--offload", "20 GB/s out"], "says no bandwidth of the way back"),
        (["solve", "CHAIN", "--budget", "4", "--host-memory", "8 GiB"], "--host-memory 8 GiB needs a bandwidth"),
        (["solve", "CHAIN", "--budget", "4", "--strategy", "offload"], 'such as --offload "25 GB/s"; doctor says'),
        (
            ["solve", "CHAIN", "--budget", "4", "--strategy", "dtr", "--offload", "pcie4"],
            "--strategy dtr sends nothing",
        ),
        ([*OPTION, "splits=2", "--offload", "pcie4"], "--option does not go with --offload"),
        (["solve", "CHAIN", "--budget", "4", "--offload", "pcie4", "--host-memory", "much"], "'much' is not a number"),
        (["solve", "CHAIN", "--budget", "four"], "'four' is not a number of bytes"),
        (["solve", "CHAIN", "--budget=--"], "'--' is no"),
        (["solve", "CHAIN", "--budget", "1" * 100_000 + "!"], "is not a number of bytes"),
        (["solve", "CHAIN", "--budget", "1e400%"], f"'1e400%' {TOO_MUCH}"),
        (["solve", "CHAIN", "--budget", HUGE], f"'{HUGE}' {TOO_MUCH}"),
        (["solve", "CHAIN", "--budget", "smallest", "--budget-means", "reserved"], "for requested bytes only"),
        (["solve", "CHAIN", "--budget", "4", "--time-limit", "nan"], "'nan' is not a number of seconds"),
        (["solve", "CHAIN", "--budget", "4", "--threads", "1" * 5000], "is more than 1024"),
        (["solve", "CHAIN", "--budget", "4", "--solver", "hihgs"], "did you mean 'highs'"),
        (["solve", "CHAIN", "--budget", "4", "--strategy", "optimall"], "unknown strategy 'optimall'; did you mean"),
        ([*OPTION, "splits=2"], "the strategy 'optimal' has no option 'splits'; its options: none"),
        ([*OPTION, "splits="], "'splits=' is not NAME=VALUE"),
        ([*OPTION, "time_limit=2", *ILP], "has no option 'time_limit'; its options: splits"),
        ([*OPTION, "splits=two", *ILP], "splits is 'two'; expected a whole number"),
        ([*OPTION, "splits=2", "--option", "splits=3", *ILP], "--option splits is given twice, as 2 and as 3"),
        ([*OPTION, "segments=9", "--strategy", "checkpoint-sequential"], "expected a whole number from 1 to 8"),
        (["solve", "CHAIN", "--budget", "4", "-o", "FOLDER"], "it is a folder, not a regular file"),
        (["show", "PIPE"], "it is a pipe, not a regular file"),
        (["sweep", "CHAIN", "--budgets", "1" * 5000], "is more than 8192 TiB"),
        (["sweep", "CHAIN", "--budgets", "1000000000"], "1000000000 is not a number of budgets; give 1 to 1000"),
        (["sweep", "CHAIN", "--budgets", ","], "no budgets to sweep over"),
        (["sweep", "CHAIN", "--budgets", "4,much"], "'much'"),
        (["sweep", "CHAIN", "--workers", "0"], "'0' is not a whole number"),
        (["ablation", "CHAIN", "--budgets", "100%", "--kinds", "lean"], "capture the model"),
        (["max-batch", "CHAIN", "--memory", "lots"], "'lots' is not a number of bytes"),
        (["max-batch", "CHAIN", "--memory", "9", "--overhead-limit", "some"], "'some' is no limit on the overhead"),
        (["max-batch", "CHAIN", "--memory", "9", "--vary", "image"], "--vary image does not apply to"),
        (["max-batch", "CHAIN", "--memory", "9", "--batch", "3"], "--batch 3 contradicts --vary batch"),
        (["max-batch", "CHAIN", "--memory", "9", "--larger", "CHAIN"], "nothing of 'linear8' grows with the batch"),
        (["max-batch", "mlp", "--memory", "9", "--larger", "CHAIN"], "--larger does not apply here: it goes with a"),
        (["max-batch", "mlp", "--memory", "9", "--step", "8"], "--step does not apply here: it goes with --vary"),
        (["max-batch", "net.py:make", "--memory", "1 GB"], "chooses its own inputs, so its batch cannot be varied"),
        (["minimum-budget", "CHAIN", "--overhead", "much"], "'much' is no overhead; write 10% or 0.1"),
        (["minimum-budget", "CHAIN", "--overhead", "nan"], "'nan' is no overhead; write 10% or 0.1"),
        (["app", "--port", "65536"], "'65536' is more than 65535"),
        (["app", "--idle-minutes", "inf"], "'inf' is not a number of minutes"),
    ],
)
def test_what_a_command_cannot_do_is_quoted_and_leaves_with_64(
    capsys, chain, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    places = {"CHAIN": chain, "FOLDER": str(tmp_path), "PIPE": str(tmp_path / "pipe.json")}
    code, out, err = run(capsys, *[places.get(argument, argument) for argument in arguments])
    assert (code, out) == (64, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("budget", [1e400, "1e400", 10**5000, 2**63 - 1, float("nan"), -5, "much", None], ids=type)
def test_python_says_the_same_of_a_budget_before_anything_is_compiled(budget):
    for ask in (
        lambda: solve(linear(2), budget),
        lambda: sweep(linear(2), [budget]),
        lambda: rx.compile(MODEL, budget),
        lambda: rx.partitioner(budget),
    ):
        with pytest.raises(RematError):
            ask()


def test_a_kept_solution_with_a_number_beyond_all_others_is_solved_anew(capsys, chain, tmp_path, monkeypatch):
    monkeypatch.setenv("REMAT_EXPLORER_CACHE", str(tmp_path))
    assert run(capsys, "solve", chain, "--budget", "4")[0] == 0
    (kept,) = tmp_path.glob("solution-*.json")
    for key in ("budget", "lower_bound"):
        document = json.loads(kept.read_text())
        document["solution"][key] = 10**400
        kept.write_text(json.dumps(document))
        code, out, err = run(capsys, "cache", "list")
        assert (code, err) == (0, "")
        assert ("(unreadable)" in out) == (key == "budget")
        assert run(capsys, "solve", chain, "--budget", "4", "--json")[0] == 0


MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
INPUTS = (torch.ones(3, 4),)
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("ask", "argument"),
    [
        (lambda: rx.solve(5, 4), "graph=5"),  # pyright: ignore
        (lambda: rx.solve(linear(2), 4, strategy=5), "strategy=5"),  # pyright: ignore
        (lambda: rx.solve(linear(2), 4, time_limit=NAN), "time_limit=nan"),
        (lambda: rx.solve(linear(2), 4, threads=-1), "threads=-1"),
        (lambda: rx.sweep(linear(2), 3, strategies=["optimal", 5]), "strategies[1]=5"),  # pyright: ignore
        (lambda: rx.minimum_budget(linear(2), INFINITE), "seconds=inf"),
        (lambda: rx.max_batch(linear(2), 99, larger=linear(2), batches=(0, 0)), "batches[0]=0"),
        (lambda: rx.linear("8"), "layers='8'"),  # pyright: ignore
        (lambda: rx.capture(MODEL, INPUTS, kwargs=5), "kwargs=5"),  # pyright: ignore
        (lambda: rx.rematerialize(MODEL, INPUTS, "80%"), "kwargs='80%'"),  # pyright: ignore
        (lambda: rx.Explorer(5), "model=5"),
        (lambda: rx.Graph("g", 5, CHAIN.operations), "values=5"),  # pyright: ignore
        (lambda: rx.Plan.from_sequence(CHAIN, "x"), "sequence='x'"),  # pyright: ignore
        (lambda: rx.profile(CHAIN, MODEL, INPUTS, repeats=10**19), f"repeats={10**19}"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_quoted_and_named(ask, argument):
    with pytest.raises(ArgumentError) as refused:
        ask()
    assert argument in str(refused.value)
    assert "; it takes " in str(refused.value)


def test_numbers_of_numpy_lists_for_tuples_and_limits_without_an_end_are_taken():
    assert rx.linear(np.int64(3)).n == 7  # pyright: ignore
    assert rx.models.load("mlp", batch=2, device=torch.device("cpu")).graph.n == 34
    graph = rx.capture(MODEL, [*INPUTS], loss=torch.sum)  # pyright: ignore
    assert rx.profile(graph, MODEL, INPUTS, loss=torch.sum, repeats=1, device=torch.device("cpu")).n == graph.n
    limits: dict[str, Any] = {"time_limit": np.float32(5), "threads": np.int64(1)}
    assert rx.solve(graph, "100%", **limits).schedule is not None
    assert rx.solve(linear(2), "100%", time_limit=INFINITE).schedule is not None


def test_an_explorer_takes_one_graph_first_or_by_name_and_a_chain_has_an_end():
    explorer = rx.Explorer(linear(2), improve=False, sweep=False)
    try:
        assert explorer.wait(240)
        assert explorer.state.graph is not None
        assert explorer.state.graph.name == "linear2"
    finally:
        explorer.close()
    with pytest.raises(ArgumentError, match="two graphs"):
        rx.Explorer(linear(2), graph=linear(2))
    with pytest.raises(RematError, match="too long; give at most"):
        linear(10**30)


@pytest.mark.parametrize(("phase", "size", "cost"), [("forward", 1, 0), ("backward", 0, 1), ("backward", 0, 0)])
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
    for name in {*rx.__all__} - {"models", "errors"}:
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
        assert explorer.wait(240)
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
