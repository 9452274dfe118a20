"""Strategies: one file for each method, which says everything about it; `registry` lists them."""
