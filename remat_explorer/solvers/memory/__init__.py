"""The least memory that a graph can be computed in, and what needs it."""
