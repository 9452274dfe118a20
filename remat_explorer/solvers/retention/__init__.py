"""MOCCASIN: when each value is retained, as intervals of a constraint program."""
