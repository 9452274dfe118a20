"""Strategies that need torch; the registry in `remat_explorer.solvers.strategies` names them and loads them late."""
