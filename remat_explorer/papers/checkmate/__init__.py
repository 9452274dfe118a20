"""Figures, tables and numbers of Checkmate."""
