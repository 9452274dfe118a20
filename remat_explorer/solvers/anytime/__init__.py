"""Searches that have a schedule at once, improve it, and prove how good it is."""
