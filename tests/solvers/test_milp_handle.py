"""Rows in bulk: what the short way to HiGHS builds is what python-mip builds row by row."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import mip
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remat_explorer.solvers.milp import Milp, WaitingRows, add_rows

COLUMNS = 4
ENTRY = st.tuples(st.integers(0, COLUMNS - 1), st.integers(-3, 3))
ROW = st.tuples(st.lists(ENTRY, max_size=6), st.sampled_from("<>="), st.integers(-4, 4))


def model_of(solver_name: str) -> Any:
    model: Any = mip.Model(sense=mip.MINIMIZE, solver_name=solver_name)
    model.verbose = 0
    for _ in range(COLUMNS):
        model.add_var(lb=0, ub=1)
    return model


@given(st.lists(ROW, max_size=6))
def test_rows_are_what_python_mip_adds_one_by_one(drawn):
    rows = WaitingRows()
    for entries, sense, right in drawn:
        rows.add([column for column, _ in entries], [float(weight) for _, weight in entries], sense, float(right))
    short, long = model_of("HIGHS"), model_of("CBC")  # the handle of CBC has no short way
    added = [add_rows(mip, model, rows) for model in (short, long)]
    assert np.array_equal(added[0][0], added[1][0])
    assert added[0][1] == added[1][1]
    assert short.solver.num_rows() == long.solver.num_rows() == len(added[0][0])
    for k in range(len(added[0][0])):
        found = [model.solver.constr_get_expr(mip.Constr(model, k)) for model in (short, long)]
        weights = [{variable.idx: weight for variable, weight in each.expr.items()} for each in found]
        assert weights[0] == weights[1]
        assert (found[0].sense, found[0].const) == (found[1].sense, found[1].const)


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_right_hand_side_changes_in_place(solver):
    problem = Milp(solver, relaxed=True)
    x, y = problem.column(cost=-1), problem.column(cost=-1)
    nothing = problem.row([], [], "<", 5)
    limit = problem.row([x, y], [1, 1], "<", 1.5)
    assert problem.solve().objective == pytest.approx(-1.5)
    problem.set_right(limit, 0.5)
    problem.set_right(nothing, 4)
    assert (problem.right(limit), problem.right(nothing)) == (0.5, 4)
    assert problem.solve().objective == pytest.approx(-0.5)


@pytest.mark.parametrize(("sense", "right"), [("<", -1), (">", 1), ("=", 1), ("=", -1)])
def test_a_row_without_columns_that_cannot_hold_makes_the_problem_infeasible(sense, right):
    problem = Milp()
    column = problem.column()
    problem.row([column, column], [1, -1], sense, right)  # the two cancel
    assert problem.contradiction
    assert problem.solve().status == "infeasible"


FREED = """
import gc, importlib, sys
from remat_explorer.solvers.milp import Milp
problem = Milp(sys.argv[1])
with importlib.import_module(sys.argv[2]).ffi._lock:  # as where garbage is collected while cffi looks something up
    del problem
    gc.collect()
print("freed")
"""


@pytest.mark.parametrize(("solver", "module"), [("highs", "mip.highs"), ("cbc", "mip.cbc")])
def test_the_first_model_is_freed_also_while_cffi_holds_its_lock(solver, module):
    command = [sys.executable, "-c", FREED, solver, module]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "freed\n"
