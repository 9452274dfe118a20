"""The compiled search for schedules: walks that plan one, a local search that improves it, and an exact search.

`planner` (`plan_schedule`, `guided_schedule`, `load_search`) is the beginning: a schedule in milliseconds. It makes
`walks`, whose compiled steps are `walk`, and ends with `local_search`, whose compiled steps are `annealing` and
`flips`. `exact_search` (`search_exactly`) is the A* of small graphs; its states are in `exact_space`, its compiled
steps in `exact_order`. `compilation` compiles all of them ahead.
"""
