"""Many budgets of one graph: sweeps, and the frontier of cost and peak.

`sweep_run` (`sweep`, `Sweep`) gives out the work, `sweep_points` keeps what is known, `own_points` is for methods that
do not ask for the budget, and `frontier` is the result and its file.
"""
