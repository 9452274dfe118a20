"""The least memory of a schedule at a limited overhead.

`memory_search` (`memory_at_overhead`) is the search, `memory_descent` its steps with one choice of implementations.
"""
