"""Searches that have a schedule at once, improve it, and prove how good it is.

`plain_search` is that of `optimal` and the one to read first; `joint_search` is that of `monet`; `sweep_search` is
`optimal` at several budgets; `chain_starts` constructs the first schedules of chains.
"""
