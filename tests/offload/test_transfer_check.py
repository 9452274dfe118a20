"""Plans with transfers: known ones pass the check with the makespan that an exhaustive search gave, mutants do not."""

import random
from dataclasses import replace

import pytest

from remat_explorer.errors import QuantityError, ScheduleError
from remat_explorer.instances import linear
from remat_explorer.offload import Drop, Fetch, Send, TransferPlan, Transfers, check_transfers
from remat_explorer.plan import Compute, Free, Plan
from remat_explorer.solvers import checkpoint_all
from tests.offload.small_graphs import Instance, instances

KNOWN = [one for one in instances() if one.letters and not one.any_order]


def test_known_plans_take_what_an_exhaustive_search_says() -> None:
    """Some were made for fetches that may begin before the computations listed before them: those take longer here."""
    equal = 0
    for one in KNOWN:
        checked = check_transfers(one.plan, one.budget, one.plan.makespan, one.makespan)
        assert (checked.peak, checked.host_peak) == (one.peak, one.host_peak)
        equal += checked.makespan == one.makespan
    assert (len(KNOWN), equal) == (173, 136)


def test_the_clock_of_a_plan_and_the_check_count_the_same() -> None:
    for one in KNOWN:
        plan, checked = one.plan, check_transfers(one.plan)
        assert (plan.makespan, plan.peak, plan.host_peak) == (checked.makespan, checked.peak, checked.host_peak)


@pytest.mark.parametrize("one", [one for one in KNOWN if " f" in one.letters][::7], ids=str)
def test_a_plan_without_one_of_its_statements_is_refused(one: Instance) -> None:
    statements = one.plan.statements
    for i in range(len(statements)):
        with pytest.raises(ScheduleError):
            check_transfers(replace(one.plan, statements=statements[:i] + statements[i + 1 :]), one.budget)


@pytest.mark.parametrize("one", [one for one in KNOWN if " f" in one.letters][::7], ids=str)
def test_a_plan_with_a_statement_twice_is_refused(one: Instance) -> None:
    statements = one.plan.statements
    for i in range(len(statements)):
        with pytest.raises(ScheduleError):
            check_transfers(replace(one.plan, statements=statements[: i + 1] + statements[i:]), one.budget)


def test_a_moved_statement_is_refused_or_no_faster() -> None:
    """Optimal plans: whatever else is legal within the budget takes at least as long."""
    draw, refused, passed = random.Random(0), 0, 0
    for one in KNOWN:
        if " f" not in one.letters:
            continue
        for _ in range(8):
            statements = list(one.plan.statements)
            statements.insert(draw.randrange(len(statements)), statements.pop(draw.randrange(len(statements))))
            try:
                checked = check_transfers(replace(one.plan, statements=tuple(statements)), one.budget)
            except ScheduleError:
                refused += 1
            else:
                passed += 1
                assert one.makespan is not None
                assert checked.makespan >= one.makespan
    assert refused > 300
    assert passed > 50


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["s0"], "sends 'v0', which is not on the device"),
        (["c0", "f0"], "fetches 'v0', of which the host has no copy"),
        (["c0", "s0", "f0"], "fetches 'v0', which is on the device"),
        (["c0", "s0", "s0"], "sends 'v0', of which the host has a copy"),
        (["c0", "x0", "c1"], "without 'v0', which is not on the device"),
        (["c0", "d0"], "drops the copy of 'v0', which the host does not have"),
        (["c0", "c0"], "out of the order of stages"),
    ],
)
def test_the_first_violation_is_named(words: list[str], message: str) -> None:
    kinds = {"x": Free, "s": Send, "f": Fetch, "d": Drop}
    statements = [
        Compute(int(word[1:]), int(word[1:]), 1, True) if word[0] == "c" else kinds[word[0]](1, int(word[1:]))
        for word in words
    ]
    with pytest.raises(ScheduleError, match=message):
        check_transfers(TransferPlan(linear(2), Transfers(1, 1), tuple(statements)))


def test_a_plan_that_sends_nothing_is_a_plan_of_checkmate() -> None:
    plan = Plan.of(checkpoint_all(linear(8)))
    checked = check_transfers(TransferPlan.from_plan(plan, Transfers(0, 0)))
    assert (checked.makespan, checked.peak, checked.host_peak) == (17.0, plan.peak, 0)


def test_claims_that_do_not_hold_are_refused() -> None:
    one = next(one for one in KNOWN if one.host_peak == 2)
    assert one.makespan is not None
    with pytest.raises(ScheduleError, match="takes"):
        check_transfers(one.plan, makespan=one.makespan + 1)
    with pytest.raises(ScheduleError, match="less than its lower bound"):
        check_transfers(one.plan, lower_bound=one.makespan + 1)
    with pytest.raises(ScheduleError, match="above the budget"):
        check_transfers(one.plan, one.budget - 1)
    with pytest.raises(ScheduleError, match="on the host"):
        check_transfers(replace(one.plan, transfers=replace(one.transfers, host_bytes=1)))


def test_whatever_is_faster_makes_no_plan_slower() -> None:
    draw = random.Random(1)
    for one in KNOWN:
        plan = one.plan
        faster = replace(plan.transfers, out=plan.transfers.out * 2, back=plan.transfers.back * 3, latency=0.0)
        ways = [replace(op, implementations=(replace(op.default, cost=op.default.cost * draw.random()),))
                for op in plan.graph.operations]  # fmt: skip
        graph = replace(plan.graph, operations=tuple(ways))
        assert check_transfers(replace(plan, transfers=faster, graph=graph)).makespan <= plan.makespan


@pytest.mark.parametrize("wrong", [(-1, 1), (1, "fast"), (1, 1, float("nan")), (1, 1, 0, 1.5), (1, 1, 0, None, 2)])
def test_a_number_that_is_none_is_refused(wrong: tuple) -> None:
    with pytest.raises(QuantityError):
        Transfers(*wrong)
