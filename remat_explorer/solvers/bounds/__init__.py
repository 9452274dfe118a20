"""Relaxations of the frontier-advancing problem, and the points that they lead to.

`few_moments` is the quick bound. `merged_stages` and `lazy_rows` are the liveness formulation with lazy rows, and
`stage_refinement` the rounds that raise its bound.
"""
