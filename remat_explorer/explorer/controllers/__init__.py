"""What the explorer does, in the background: load, solve, sweep, improve, execute, edit, present.

`driver` is what clicks and scripts call. `model_sources` and `loading` get a graph, `solving` searches for its
schedule, `background_searches` does so unasked, `executing` measures, and `screen` shows what was found.
"""
