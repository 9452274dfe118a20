"""How often a path must run again so that it can be visited in reverse: a bound where memory is tight.

`reversal_bound` is the bound and its proof, `reversal_table` the compiled recurrence.
"""
