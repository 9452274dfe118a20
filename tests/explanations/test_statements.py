"""What runs and what is in memory meanwhile, in words: rows that add up, stages, and implementations."""

import json
from typing import Any

import numpy as np
import pytest

import remat_explorer as rx
from remat_explorer.capture_options import KINDS
from remat_explorer.explanations import alive_at, explain_operation, largest_difference, summarize_stage
from remat_explorer.explanations.choices import (
    EXPLAINED,
    explain_choice,
    is_exact,
    kinds_in,
    kinds_used,
    statement_text,
)
from remat_explorer.graph import Graph, Value, operation
from remat_explorer.graph.file import dump_graph
from remat_explorer.instances import linear
from remat_explorer.operation_details import Details
from remat_explorer.plan import Plan
from remat_explorer.schedule import Schedule
from remat_explorer.solvers import solve
from tests.figures.choices import chain_with_choices


def everything(graph: Graph) -> Plan:
    return Plan.from_sequence(graph, [(k, k, 1) for k in range(graph.n)])


def step() -> Graph:
    """An input layer, a result that stays, and a backward operation with workspace, over resident bytes."""
    details = Details("net", "conv2d", ("4x2",), "net.py:3")
    return Graph(
        "step",
        (Value("x", 400), Value("loss", 1, True), Value("w.grad", 20, True)),
        (
            operation("make x", "forward", [], [0], 1.0, details=details),
            operation("loss", "forward", [0], [1], 2.0),
            operation("w gradient", "backward", [0, 1], [2], 5.0, workspace=300),
        ),
        resident_bytes=1000,
    )


def again() -> Schedule:
    R, S = np.eye(3, dtype=int), np.zeros((3, 3), dtype=int)
    R[2, 0] = S[1, 0] = S[2, 1] = 1
    return Schedule(step(), R, S)


def test_rows_are_sorted_and_say_why_each_is_there():
    memory = alive_at(everything(step()))
    assert (memory.stage, memory.text, memory.total) == (2, "compute w gradient", 1721)
    assert [(row.kind, row.name, row.bytes, row.reason) for row in memory.rows] == [
        ("resident", "resident", 1000, "parameters, inputs and buffers are always there"),
        ("value", "x", 400, "read by w gradient, here"),
        ("workspace", "workspace", 300, "needed by w gradient only while it runs"),
        ("value", "w.grad", 20, "being written"),
        ("value", "loss", 1, "read by w gradient, here"),
    ]
    memory = alive_at(everything(linear(2)), 2)
    (row,) = [row for row in memory.rows if row.name == "v0"]
    assert row.reason == "kept for v4 in stage 4"
    assert row.reader == 4


def test_the_rows_add_up_to_the_predicted_memory_at_every_statement(data):
    graph = Graph.load(str(data / "captured" / "unet.json"))
    for strategy in ("checkpoint-all", "ap-sqrt-n"):
        plan = solve(graph, budget="100%", strategy=strategy).plan
        assert plan is not None
        for at in range(0, len(plan.statements), 5):
            assert sum(row.bytes for row in alive_at(plan, at).rows) == plan.timeline.during[at]
        assert alive_at(plan).total == plan.peak


def test_an_operation_says_where_it_comes_from_and_where_it_runs():
    schedule = again()
    found = explain_operation(schedule, 0)
    assert (found.module, found.operator, found.line, found.shapes) == ("net", "conv2d", "net.py:3", ("4x2",))
    assert found.stages == (0, 2)
    assert found.sentence == "Costs 1 (12.5 % of one pass), no workspace; runs 2 times, in stages 0, 2."
    assert "300 B of workspace" in explain_operation(schedule, 2).sentence
    assert explain_operation(schedule, 2).line == ""


def test_a_stage_says_what_it_computes_recomputes_and_starts_with():
    schedule = again()
    found = summarize_stage(schedule, Plan.of(schedule), 2)
    assert (found.new, found.again, found.kept, found.kept_bytes) == ((2,), (0,), 1, 1)
    assert found.sentence == ("computes w gradient · recomputes 1 · starts with 1 kept value (1 B) · peaks at 1.68 KiB")


def test_a_larger_workspace_is_the_reason_where_the_difference_is_within_the_statement():
    plan = everything(step())
    assert largest_difference(plan, plan.timeline.during, np.asarray(plan.timeline.after)) is None
    during = plan.timeline.during.copy()
    during[2] += 2**20
    found = largest_difference(plan, during, plan.timeline.after)
    assert found is not None
    assert (found.statement, found.bytes, found.held) == (2, 2**20, 0)
    assert found.reason == "the workspace of w gradient was 1.00 MiB larger than predicted"


def test_what_was_already_held_is_traced_back_to_the_statement_that_brought_it():
    plan = everything(step())
    during, after = plan.timeline.during.copy(), plan.timeline.after.copy()
    after[0] += 64
    after[1] += 64
    during[1] += 64
    during[2] += 64
    found = largest_difference(plan, during, after)
    assert found is not None
    assert (found.statement, found.held) == (1, 64)
    assert found.reason == "what was held was 64 B larger than predicted since 'compute make x' (statement 0)"


@pytest.fixture(scope="module")
def schedule() -> Any:
    return rx.solve(chain_with_choices(), 3600, "monet", time_limit=20, implementations=["masks"]).schedule


def test_the_choice_says_what_is_read_and_what_it_costs(schedule: Any) -> None:
    choice = explain_choice(schedule, 5, 4)
    assert choice is not None
    assert (choice.name, choice.kind, choice.cost, choice.reads, choice.spares) == ("from bits", "masks", 1, (2,), (1,))
    assert choice.sentence == (
        "reads mask (100 B) instead of relu (800 B), costs 1 more than the default, results equal bit for bit"
    )
    usual = explain_choice(schedule, 0, 0)
    assert usual is not None
    assert usual.sentence == "PyTorch's own, of 2 implementations"


def test_statements_name_an_implementation_that_is_not_the_default(schedule: Any) -> None:
    plan = rx.Plan.of(schedule)
    texts = [statement_text(plan, statement) for statement in plan.statements]
    assert "compute relu backward · from bits" in texts
    assert "compute conv" in texts


def test_kinds_of_a_schedule_are_those_that_it_runs_and_a_way_without_one_is_called_like_itself(schedule: Any) -> None:
    assert kinds_used(schedule) == {"masks"}
    assert kinds_in(schedule.graph) == ("masks", "chunks", "algorithms")
    assert is_exact(schedule.graph, "masks")
    assert not is_exact(schedule.graph, "chunks")
    assert set(EXPLAINED) >= set(KINDS)
    document = json.loads(dump_graph(schedule.graph))
    for node in document["operations"]:
        for way in node["implementations"]:
            way.pop("kinds", None)
    assert kinds_in(Graph.from_document(document)) == ("from bits", "in chunks of 1", "native")
