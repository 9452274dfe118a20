"""The least memory that a graph can be computed in, and what needs it.

`minimum_budget` is the answer, and what "smallest" means; `lowest_peak` finds it.
"""
