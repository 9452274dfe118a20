"""The panels beside the plots, and the case study: HTML whose names and rows can be clicked.

`panels` has the tabs; `side_panel` is what each of them is made of.
"""
