"""Relaxations of the frontier-advancing problem, and the points that they lead to."""
