"""A known schedule as a point of the joint problem, for a back end to begin with."""

from __future__ import annotations

import numpy as np

from remat_explorer.solvers.linear_expression import LinearExpression
from remat_explorer.solvers.monet.condensed_choices import CondensedChoices
from remat_explorer.solvers.monet.joint_columns import JointColumns


def unbeaten_codes(problem: CondensedChoices, R: np.ndarray) -> np.ndarray | None:
    """The same runs in implementations that the problem has.

    An implementation that another one beats in everything is left out of the problem, so the other runs in its place:
    what fits the budget still does, for no more cost.

    Args:
        problem: operations with their ways.
        R: (T, n), 0 or the code of the implementation that runs.

    Returns:
        R with the codes of ways, or None where an implementation is neither among them nor replaced.
    """
    R = R.astype(np.int64)
    for k in np.flatnonzero(R.any(axis=0)).tolist():
        known = {way.code for way in problem.ways[k]}
        for code in set(R[:, k].tolist()) - known - {0}:
            if code not in problem.beaten[k]:
                return None
            R[R[:, k] == code, k] = problem.beaten[k][code]
    return R


def retained_groups(problem: CondensedChoices, R: np.ndarray) -> np.ndarray:
    """S of the leanest schedule with these runs, bool of shape (T + 1, groups); the last row is after the last stage.

    Args:
        problem: operations with their ways.
        R: (T, n), 0 or the code of a way of the problem.
    """
    ways = [{way.code: way for way in ways} for ways in problem.ways]
    S = np.zeros((len(R) + 1, problem.groups), dtype=bool)
    for t in range(len(R) - 1, -1, -1):
        S[t] = S[t + 1]
        for k in np.flatnonzero(R[t])[::-1].tolist():
            way = ways[k][int(R[t, k])]
            S[t, list(way.outputs)] = False
            S[t, list(way.inputs)] = True
    return S


def joint_point(joint: JointColumns, R: np.ndarray) -> np.ndarray | None:
    """One value for each column, where R, with codes of the problem's ways, can be expressed in its columns; else None.

    What has no column is a constant, which R must agree with. Columns that follow from others are set as low, or as
    high, as their rows allow.

    Args:
        joint: the problem, with all its rows so far.
        R: (T, n), 0 or the code of a way of the problem.

    >>> from remat_explorer.instances import linear
    >>> from remat_explorer.solvers.base import Limits
    >>> from remat_explorer.solvers.milp import Milp
    >>> from remat_explorer.solvers.monet.joint_problem import JointProblem
    >>> joint = JointProblem(CondensedChoices.of(linear(2)), 5, Milp())
    >>> joint.build(Limits()), len(joint_point(joint, np.eye(5))) == joint.milp.columns
    (True, True)
    """
    S = retained_groups(joint.problem, R)
    if any((t, k) not in joint.delta for t, k in np.argwhere(R).tolist()):
        return None
    values = np.full(joint.milp.columns, np.nan)
    for (t, k), ways in joint.delta.items():
        for way, run in ways:
            if not _put(values, run, float(R[t, k] == way.code)):
                return None
    for (t, v), held in joint.S.items():
        if not _put(values, held, float(S[t, v])):
            return None
    for column, of, one, other in joint.derived:
        values[column] = of(one.at(values), other.at(values))
    return None if np.isnan(values).any() else values


def _put(values: np.ndarray, single: LinearExpression, wanted: float) -> bool:
    """Set the column of an expression so that its value is the wanted one; False where it is another already."""
    if not single.columns:
        return single.constant == wanted
    column, value = single.columns[0], (wanted - single.constant) / single.weights[0]
    if np.isnan(values[column]):
        values[column] = value
    return bool(values[column] == value)
