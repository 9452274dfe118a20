"""Strategies: one file per method, one line each in the registry."""
