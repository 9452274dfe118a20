"""Schedules that choose an implementation for every run of every operation.

`condensed_choices` has the graph as programs read it, `selections` choices by a rule, `joint_problem` the exact
program, `relaxation_with_choices` the bound, and `windows` the improvement of a schedule.
"""
