"""Rounding of problem (9)'s linear program: Checkmate's approximation, and why simpler ways of rounding fail."""
