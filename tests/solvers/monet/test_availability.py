"""What is available between two moments: rows that shares of several ways must not get round."""

from __future__ import annotations

import numpy as np
import pytest

from remat_explorer.solvers.base import Limits
from remat_explorer.solvers.linear_expression import LinearExpression, total
from remat_explorer.solvers.milp import Milp
from remat_explorer.solvers.monet.condensed_choices import (
    Availability,
    CondensedChoices,
    CondensedImplementation,
    Tables,
)
from remat_explorer.solvers.monet.joint_problem import JointProblem
from remat_explorer.solvers.monet.relaxation_with_choices import RelaxationWithChoices
from tests.solvers.monet.choice_graphs import normalized_chain

X, Y, SAVED, MASK = range(4)
SIZES = np.array([8, 8, 0, 1])


def way(inputs: tuple[int, ...], outputs: tuple[int, ...], code: int = 1) -> CondensedImplementation:
    return CondensedImplementation(code, inputs, outputs, 1.0, 0, -1, 0, True)


def held(v: int) -> LinearExpression:
    return LinearExpression.of(100 + v)


def sum_of(*columns: int) -> LinearExpression:
    return total(map(LinearExpression.of, columns))


def test_sets_that_every_way_reads_leave_out_what_is_there_for_nothing():
    available = Availability({}, held, SIZES)
    assert available.common([way((X, SAVED), ())]) == [(X,)]
    assert available.common([way((X, SAVED), ()), way((Y, SAVED), ())]) == [(X, Y)]
    assert available.common([way((X, Y), ()), way((X, MASK), ())]) == [(X,), (Y, MASK)]
    assert available.common([way((X,), ()), way((SAVED,), ())]) == []


def test_runs_that_read_one_of_the_groups_do_not_count():
    again = {1: way((), (X,)), 2: way((X,), (Y,)), 3: way((Y,), (MASK,))}
    available = Availability(again, held, SIZES)
    assert available.of(Y) == sum_of(2, 100 + Y)
    assert available.of_any((X, Y, MASK)) == sum_of(1, 100 + X, 100 + Y, 100 + MASK)
    assert available.of_any((Y, MASK)) == sum_of(2, 100 + Y, 100 + MASK)


def test_what_is_always_there_asks_for_nothing():
    available = Availability({}, lambda v: None if v == X else held(v), SIZES)
    assert available.of(X) is None
    assert available.of_any((X, Y)) is None


def test_several_ways_of_a_run_ask_for_what_they_share_once(monkeypatch):
    rows, milp = [], Milp()
    monkeypatch.setattr(milp, "row", lambda *row: rows.append(row))
    available = Availability({1: way((X,), (Y,)), 2: way((X, SAVED), (Y,), code=2)}, held, SIZES)
    available.add_columns(milp, lambda: 7)
    assert rows == [([7, 1, 2], [1, -1, -1], "<", 0), ([7, 100 + X], [1, -1], "<", 0)]
    assert available.of(Y) == sum_of(7, 100 + Y)


def test_half_a_run_of_each_way_does_not_do_with_half_of_an_input():
    normalized = normalized_chain(4)
    budget = 56  # of 104 that keeping everything takes
    problem = CondensedChoices.of(normalized)
    joint = JointProblem(problem, budget, Milp(relaxed=True))
    joint.build(Limits())
    schedule, _ = joint.solve(Limits())
    assert schedule is not None
    relaxation = RelaxationWithChoices(Tables(problem), budget)
    bound = relaxation.improve(Limits(), integral=False).bound
    assert bound <= schedule.cost + 1e-6
    rerun, proven = schedule.cost - normalized.total_cost, bound - normalized.total_cost
    assert proven == pytest.approx(rerun)
