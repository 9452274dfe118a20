"""Searches that have a schedule at once, improve it, and prove how good it is.

`optimal` is the one to read first; `monet` is that with implementations; `sweep_search` is `optimal` at several
budgets; `chain_starts` constructs the first schedules of chains.
"""
