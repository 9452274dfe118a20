"""Tests, and the helpers that several of them import, as tests.solvers.drawn_graphs."""
