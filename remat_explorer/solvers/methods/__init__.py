"""Methods: each file has a strategy's algorithm and its `Method`, which says everything else about it.

`remat_explorer.solvers.registry` gives them their names. The two searches with proofs, optimal and monet, are in
`remat_explorer.solvers.anytime_search`. To read first: `static_policy` (schedules from what is kept), then `chen` and
`griewank` for checkpoints on chains and graphs, `checkmate_ilp` and `checkmate_approx` for the integer program and its
rounding, and `regions` with `hand_written_rules` for what frameworks do.
"""
