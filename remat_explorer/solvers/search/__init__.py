"""The compiled search for schedules: walks that plan one, a local search that improves it, and an exact search.

`planner` (`plan_schedule`, `guided_schedule`, `load_search`) is the beginning: a schedule in milliseconds. It makes
walks and ends with annealing, both in `local_search`, whose compiled steps are `walk`, `annealing` and `flips`.
`exact_search` (`search_exactly`) is the A* of small graphs; its compiled steps are in `exact_order`. The arrays of all
of them are in `compiled_state`; `compilation` compiles them ahead.
"""
